"""Several outputs."""

from autofn import formula


@formula
def quaternion_product(aw, ax, ay, az, bw, bx, by, bz):
    """Hamilton product of the quaternions a and b, real part first (as in pytorch3d)."""
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )
