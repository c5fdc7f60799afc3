"""Every file has a room, says what it is for and stays small enough to be read."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from domain.contracts.offers import ProviderName
from tests.architecture.tree import ROOMS, ROOT, product_modules, repository_files, syntax_of, text_of
from workflows.runtime import TRUSTED

MAX_LINES = 500
MAX_ADAPTER_LINES = 600
MAX_FUNCTION_LINES = 40
BESIDE_THE_ROOMS = {"tests", "deploy", "docs", ".ci"}
FORBIDDEN_WORDS = {"manager", "helper", "helpers", "util", "utils", "common", "misc"}


def length_limit(path: str) -> int:
    """Adapters and their twins at the wire may be longer: one file a cloud."""
    adapters = ("activities/providers/", "activities/cluster/", "sandbox/clouds/")
    return MAX_ADAPTER_LINES if path.startswith(adapters) else MAX_LINES


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function from its ``def`` on, without its docstring."""
    length = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def test_repository_has_no_python_outside_the_rooms() -> None:
    strangers = [
        path
        for path in repository_files()
        if path.endswith(".py") and path.split("/")[0] not in {*ROOMS, *BESIDE_THE_ROOMS}
    ]
    assert strangers == []


@pytest.mark.parametrize("room", ROOMS)
def test_room_resolves_inside_this_repository(room: str) -> None:
    spec = importlib.util.find_spec(room)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).resolve().parent == ROOT / room


def test_every_folder_of_a_room_is_a_package() -> None:
    folders = {str(Path(path).parent) for path in product_modules()}
    assert [folder for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [path for path in product_modules() if not ast.get_docstring(syntax_of(path))]
    assert silent == []


def test_every_module_can_be_read_in_one_go() -> None:
    lengths = {path: len(text_of(path).splitlines()) for path in product_modules()}
    assert {path: n for path, n in lengths.items() if n > length_limit(path)} == {}


def test_every_function_fits_on_a_page() -> None:
    long = {
        f"{path}:{node.lineno} {node.name}": own_lines(node)
        for path in product_modules()
        for node in ast.walk(syntax_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and own_lines(node) > MAX_FUNCTION_LINES
    }
    assert long == {}


def test_no_module_or_class_has_a_name_that_says_nothing() -> None:
    names = {path: Path(path).stem for path in product_modules()}
    for path in product_modules():
        names |= {
            f"{path} {node.name}": re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name)
            for node in ast.walk(syntax_of(path))
            if isinstance(node, ast.ClassDef)
        }
    vague = [place for place, name in names.items() if FORBIDDEN_WORDS & set(name.lower().split("_"))]
    assert vague == []


@pytest.mark.parametrize(
    ("sdk", "home"),
    [
        ("tencentcloud", "activities/providers/tencent"),
        ("alibabacloud", "activities/providers/aliyun"),
        ("darabonba", "activities/providers/aliyun"),
        ("boto3", "activities/providers/aws"),
        ("huaweicloudsdk", "activities/providers/huawei"),
    ],
)
def test_sdk_is_named_in_its_adapter_only(sdk: str, home: str) -> None:
    """Also where it is imported by name at run time, which import-linter cannot see."""
    imports = re.compile(rf"""(^\s*(from|import)\s+|import_module\(["']){sdk}""", re.MULTILINE)
    strangers = [p for p in product_modules() if imports.search(text_of(p)) and not p.startswith(home)]
    assert strangers == []


@pytest.mark.parametrize("room", ["activities.providers", "sandbox.clouds"])
@pytest.mark.parametrize("cloud", ProviderName)
def test_cloud_uses_no_part_of_another(room: str, cloud: ProviderName) -> None:
    others = rf"({'|'.join(other for other in ProviderName if other != cloud)})(_|\b)"
    imports = re.compile(rf"from {room}(\.| import .*\b){others}")
    # The name of one cloud may begin with that of another.
    module = re.compile(rf"{room.replace('.', '/')}/{cloud}(_\w+)?\.py")
    own = [path for path in product_modules() if module.fullmatch(path)]
    assert own
    assert [path for path in own if imports.search(text_of(path))] == []


def test_every_test_module_mirrors_a_room() -> None:
    beside = {*ROOMS, "architecture", "e2e", "variants", "replay", "fakes", "docs", "deploy"}
    strangers = [
        path
        for path in repository_files()
        if path.startswith("tests/")
        and Path(path).name.startswith("test_")
        and path.split("/")[1] not in beside
    ]
    assert strangers == []


def test_level_of_temporal_has_every_room_with_such_tests() -> None:
    listed = re.search(r"^TEMPORAL_ROOMS := (.+)$", text_of("Makefile"), re.MULTILINE)
    assert listed is not None
    marked = {
        path.split("/")[1]
        for path in repository_files()
        if path.startswith("tests/") and re.search(r"pytest\.mark\.temporal\b", text_of(path))
    }
    assert marked == set(listed[1].split())


DECLARING = {"typing", "enum", "decimal", "datetime.timedelta", "collections.abc", "pydantic", "domain"}
DECLARING |= {"temporalio.activity", "temporalio.common", "temporalio.workflow.ActivityCancellationType"}


@pytest.mark.parametrize("module", [name for name in TRUSTED if name != "domain"])
def test_module_that_workflows_share_only_declares(module: str) -> None:
    syntax = syntax_of(module.replace(".", "/") + ".py")
    imported = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(syntax)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    plain = [node for node in ast.walk(syntax) if isinstance(node, ast.Import)]
    assert plain == []
    assert [name for name in sorted(imported) if not within(name, DECLARING)] == []


def within(name: str, modules: set[str]) -> bool:
    """Whether a dotted name is one of these or below one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)
