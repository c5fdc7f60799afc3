from domain.contracts.catalogue import CATALOGUE, instance_type, known_gpu_types, types_for
from domain.contracts.offers import Interconnect, ProviderName

TENCENT, ALIYUN, AWS = ProviderName.TENCENT, ProviderName.ALIYUN, ProviderName.AWS


def names(provider: ProviderName, gpu_type: str) -> list[str]:
    return [row.name for row in types_for(provider, gpu_type)]


def test_types_for_matches_model_and_memory():
    assert names(TENCENT, "A100-40G") == ["GT4.4XLARGE96", "GT4.20XLARGE474", "GT4.41XLARGE948"]
    assert "ecs.gn7e-c16g1.4xlarge" in names(ALIYUN, "A100-80G")
    assert "ecs.gn7-c12g1.3xlarge" not in names(ALIYUN, "A100-80G")


def test_types_for_takes_any_memory_for_a_bare_model():
    assert set(names(ALIYUN, "A100")) == set(names(ALIYUN, "A100-40G")) | set(names(ALIYUN, "A100-80G"))


def test_types_for_is_empty_for_what_a_cloud_does_not_sell_or_nobody_knows():
    assert names(TENCENT, "A100-80G") == []
    for unknown in ("a100-40g", "A100-40", "A100-40GB", "A100-", "", "A100-40G ", "H20-95G", "A100-040G"):
        assert names(ALIYUN, unknown) == [], unknown


def test_types_for_uses_the_memory_that_is_sold_where_an_api_reports_less():
    assert "g5.xlarge" in names(AWS, "A10G-24G")
    assert "g6e.xlarge" in names(AWS, "L40S-48G")


def test_known_gpu_types_are_sorted_and_each_finds_something():
    known = known_gpu_types()
    assert list(known) == sorted(set(known))
    assert {"A100", "A100-40G", "A100-80G", "V100-32G", "T4"} <= set(known)
    for gpu_type in known:
        assert any(types_for(provider, gpu_type) for provider in ProviderName), gpu_type


def test_catalogue_rows_are_whole_machines_with_unique_names():
    for provider, rows in CATALOGUE.items():
        assert len({row.name for row in rows}) == len(rows)
        for row in rows:
            assert row.provider is provider
            assert row.gpu_count >= 1
            assert (row.interconnect is Interconnect.SINGLE) == (row.gpu_count == 1)


def test_instance_type_finds_a_row_of_its_own_cloud_only():
    row = instance_type(TENCENT, "GT4.41XLARGE948")
    assert row is not None
    assert (row.gpu_count, row.gpu_type, row.interconnect) == (8, "A100-40G", Interconnect.NVLINK)
    assert instance_type(ALIYUN, "GT4.41XLARGE948") is None
