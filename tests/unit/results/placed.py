"""The test and the placement that the name of a case says, for records that tests make up."""

from harness.results.case_names import named, placement_in, split_node_id


def placed(case: str, engine: str = "qnn") -> tuple[str, dict[str, str | None] | None]:
    """The fields `test` and `placement` of a record of this case."""
    test, parameters = split_node_id(case)
    placed_at = placement_in(parameters or "")
    if placed_at is None:
        return case, None
    placement, rest = placed_at
    return named(test, rest), {**placement, "engine": engine}
