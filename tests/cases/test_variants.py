"""Variants with parameters: one text for each, checked by name, type and range."""

import copy
import pickle
from dataclasses import fields

import pytest

from dpbench.cases.case import Case
from dpbench.cases.names import registered
from dpbench.cases.parameters import DDP_ARGUMENTS, POLICY_PARAMETERS, value_text
from dpbench.cases.variants import SCHEMES, VariantId, VariantName, split_list
from dpbench.cli.list_names import vocabulary_json
from dpbench.parallel import Policy
from dpbench.records.record import Record
from dpbench.records.row import parse_line, to_line
from tests.records.making import ok


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("tuned", "tuned"),
        (" tuned ", "tuned"),
        ("tuned[]", "tuned"),
        ("tuned[dispatch=threads]", "tuned[dispatch=threads]"),
        (" tuned [ dispatch = threads ] ", "tuned[dispatch=threads]"),
        ("tuned[dispatch=auto,coalesce=false]", "tuned[coalesce=false,dispatch=auto]"),
        ("tuned[bucket_bytes=1MiB]", "tuned[bucket_bytes=1048576]"),
        ("tuned[bucket_bytes=1024KiB]", "tuned[bucket_bytes=1048576]"),
        ("ddp[bucket_cap_mb=1]", "ddp[bucket_cap_mb=1]"),
        ("ddp[bucket_cap_mb=1.0]", "ddp[bucket_cap_mb=1]"),
        ("ddp[bucket_cap_mb=.50]", "ddp[bucket_cap_mb=0.5]"),
        ("mine:wrap", "mine:wrap"),
        (" a.mine:wrap [ loss=replicas, chunks = 4 ]", "a.mine:wrap[chunks=4,loss=replicas]"),
    ],
)
def test_a_variant_has_one_text(text, canonical):
    variant = VariantId(text)
    assert variant == canonical
    assert VariantId(variant) == variant
    assert VariantId(variant).values == variant.values


def test_values_are_those_of_the_name_and_of_its_parameters():
    variant = VariantId("tuned[coalesce=false,bucket_bytes=1KiB,dispatch=sequence,skip_unchanged=true]")
    assert variant.name is VariantName.TUNED
    assert variant.values == {"coalesce": False, "bucket_bytes": 1024, "dispatch": "sequence", "skip_unchanged": True}
    assert VariantId("ddp[bucket_cap_mb=1]").values == {"bucket_cap_mb": 1.0}
    assert VariantId("naive").values == {}


def test_the_arguments_of_a_users_callable_are_none_of_our_parameters():
    variant = VariantId("mine:wrap[loss=replicas,chunks=4,ratio=.5,deep=true,accumulate=2,route=nccl]")
    assert variant.arguments == {
        "loss": "replicas", "chunks": 4, "ratio": 0.5, "deep": True, "accumulate": 2, "route": "nccl"
    }  # fmt: skip
    assert variant.values == {}
    assert (variant.is_own, variant.has_loss_in_replicas, variant.takes_nccl_route) == (True, False, False)
    assert variant.with_parameters() == variant
    assert sorted([variant, VariantId("fsdp")], key=lambda other: other.order) == [VariantId("fsdp"), variant]


def test_packages_register_variants(tmp_path, monkeypatch):
    folder = tmp_path / "theirs-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[dpbench.variants]\nhalved = theirs.wrap:halves\n")
    monkeypatch.syspath_prepend(tmp_path)
    registered.cache_clear()
    try:
        assert VariantId("halved[chunks=2]") == "theirs.wrap:halves[chunks=2]"
        assert {"name": "halved", "what": "theirs.wrap:halves, of theirs"} in vocabulary_json()["variants"]
        with pytest.raises(ValueError, match="'halvd' is no variant, did you mean 'halved'"):
            VariantId("halvd")
    finally:
        registered.cache_clear()


def test_with_parameters_adds_to_them_or_replaces_them():
    tuned = VariantId("tuned[coalesce=false]")
    assert tuned.with_parameters(dispatch="threads") == "tuned[coalesce=false,dispatch=threads]"
    assert tuned.with_parameters(coalesce=True) == "tuned[coalesce=true]"
    assert VariantId("ddp").with_parameters(bucket_cap_mb=2.0) == "ddp[bucket_cap_mb=2]"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("tuned,naive", ["tuned", "naive"]),
        ("tuned[dispatch=auto,coalesce=true],naive", ["tuned[dispatch=auto,coalesce=true]", "naive"]),
        ("naive, tuned[a=1,b=2] ,ddp[c=3]", ["naive", "tuned[a=1,b=2]", "ddp[c=3]"]),
        ("tuned[dispatch=auto,naive", ["tuned[dispatch=auto", "naive"]),
        ("", [""]),
    ],
)
def test_commas_inside_brackets_do_not_split(text, parts):
    assert split_list(text) == parts


def case(variant):
    return Case(variant=variant, workload="mlp/small", batch=64, devices=("cpu", "cpu"), threads=2)


def test_ids_have_the_parameters():
    rest = "|mlp/small|b64|cpu*2|train|float32|random|t2|s0"
    assert case("tuned[bucket_bytes=1KiB]").id == f"tuned[bucket_bytes=1024]{rest}"


def test_cases_and_records_keep_their_parameters_in_json():
    written = case("tuned[dispatch=threads,bucket_bytes=1MiB]")
    assert Case.model_validate_json(written.model_dump_json()) == written
    assert '"tuned[bucket_bytes=1048576,dispatch=threads]"' in written.model_dump_json()
    record = ok(written, 0)
    read = parse_line(to_line(record), Record)
    assert read == record
    assert isinstance(read, Record)
    assert read.case.variant.values == {"dispatch": "threads", "bucket_bytes": 1048576}


def test_a_copy_or_a_pickle_keeps_name_and_values():
    variant = VariantId("tuned[coalesce=false,dispatch=threads]")
    for other in (copy.copy(variant), copy.deepcopy(variant), pickle.loads(pickle.dumps(variant))):
        assert other == variant
        assert (other.name, other.values) == (variant.name, variant.values)
        assert hash(other) == hash(variant)
    assert pickle.loads(pickle.dumps(case(variant))) == case(variant)
    assert copy.deepcopy(case(variant)).variant.name is VariantName.TUNED


def test_tables_have_the_order_of_the_definitions_and_then_of_the_parameters():
    texts = ["ddp", "tuned[dispatch=auto]", "tuned", "single", "tuned[coalesce=true]"]
    ordered = sorted(map(VariantId, texts), key=lambda variant: variant.order)
    assert ordered == ["single", "tuned", "tuned[coalesce=true]", "tuned[dispatch=auto]", "ddp"]


def test_the_parameters_of_tuned_are_the_fields_of_its_policy():
    of_policy = [field for field in fields(Policy) if field.name != "shares"]  # its values are no short texts
    assert list(POLICY_PARAMETERS) == [field.name for field in of_policy]
    for field in of_policy:
        parsed = POLICY_PARAMETERS[field.name].parse(value_text(field.default))
        assert parsed == field.default
        assert type(parsed) is (str if field.name in {"dispatch", "route"} else type(field.default))


def test_those_of_ddp_are_arguments_of_torch():
    from inspect import signature

    from torch.nn.parallel import DistributedDataParallel

    assert set(DDP_ARGUMENTS) <= set(signature(DistributedDataParallel.__init__).parameters)


def test_every_name_has_a_row_with_a_wrapper_and_a_sentence():
    from dpbench.variants.registry import variant_of
    from dpbench.variants.variant import Variant

    for name in VariantName:
        assert name.sentence
        assert isinstance(variant_of(VariantId(name)), Variant)
        assert variant_of(VariantId(name)).per_rank is VariantId(name).is_per_rank
    assert SCHEMES == ("single", "torch_dp", "naive", "floor", "tuned", "ddp")


@pytest.mark.parametrize("name", VariantName)
def test_every_variant_takes_the_modes_of_torch_compile(name):
    assert VariantId(f"{name}[compile=max-autotune]").compile_mode == "max-autotune"
    assert VariantId(name).compile_mode is None
    with pytest.raises(ValueError, match=r"compile='fast' .* allowed: default, reduce-overhead, max-autotune"):
        VariantId(f"{name}[compile=fast]")


def test_compile_of_a_users_variant_is_an_argument_of_its_callable():
    assert VariantId("mine:wrap[compile=fast]").compile_mode is None
    assert VariantId("mine:wrap[compile=fast]").arguments == {"compile": "fast"}


def test_a_compiled_variant_follows_its_twin():
    texts = ["single", "single[compile=default]", "tuned", "tuned[compile=default]", "tuned[coalesce=false]"]
    texts += ["tuned[coalesce=false,compile=default]", "ddp", "ddp[compile=default]"]
    assert sorted(map(VariantId, reversed(texts)), key=lambda variant: variant.order) == texts
