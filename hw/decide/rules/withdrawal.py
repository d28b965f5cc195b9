"""The claims of members that leave."""

__all__ = ["withdraw_claims"]


def withdraw_claims(m, row, after, leaving):
    """Drive `after` with the claims `row` in which the set of members `leaving` claims nothing and is granted
    nothing."""
    m.d.comb += [after.eq(row), after.waiting.eq(row.waiting & ~leaving)]
    for kept, before in zip(after.grants, row.grants, strict=True):
        m.d.comb += kept.members.eq(before.members & ~leaving)
    for k, leaves in enumerate(leaving):
        with m.If(leaves):
            m.d.comb += after.last[k].eq(0)
