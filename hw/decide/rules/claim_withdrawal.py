"""The claims row without the members that leave."""

__all__ = ["forget"]


def forget(m, row, after, gone):
    """`after` is the row without the members in the set `gone`, who claim nothing and are granted nothing."""
    m.d.comb += [after.eq(row), after.waiting.eq(row.waiting & ~gone)]
    for kept, before in zip(after.grants, row.grants, strict=True):
        m.d.comb += kept.members.eq(before.members & ~gone)
    for k, left in enumerate(gone):
        with m.If(left):
            m.d.comb += after.last[k].eq(0)
