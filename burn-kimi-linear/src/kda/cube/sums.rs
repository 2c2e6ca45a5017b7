//! The gradients of the gate's parameters, from the sums that the chunks left: rows of `[HV, 2, K]` are added up in a fixed order, some at a
//! time, until there is one.
//!
//! `2 HV K` numbers a chunk of the call are read once, with one addition each, and a 64th of them written; the next round reads those. A unit has
//! a column, so neighbours read consecutive memory, and its sum needs nobody else's: no atomics, and one order whatever the device.

use burn::tensor::{DType, Shape};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_kimi_kernels::cube::address_type;
use cubecl::prelude::*;

use super::inputs::Inputs;

/// Rows that become one.
const ROWS: usize = 64;
/// Units in a cube.
const UNITS: usize = 64;

#[cube(launch_unchecked, address_type = "dynamic")]
fn add_rows(input: &[f32], output: &mut [f32], rows: usize, columns: usize) {
    let column = CUBE_POS_X as usize * UNITS + UNIT_POS_X as usize;
    let first = CUBE_POS_Y as usize * ROWS;
    if column < columns {
        let mut sum = input[first * columns + column];
        for row in 1..ROWS {
            if first + row < rows {
                sum += input[(first + row) * columns + column];
            }
        }
        output[CUBE_POS_Y as usize * columns + column] = sum;
    }
}

/// One cube a value head.
#[cube(launch_unchecked)]
fn split(sums: &[f32], a_log: &mut [f32], dt_bias: &mut [f32], key_dim: usize) {
    let head = CUBE_POS_X as usize;
    let base = head * 2 * key_dim;
    for column in range_stepped(UNIT_POS_X as usize, key_dim, UNITS) {
        dt_bias[head * key_dim + column] = sums[base + column];
    }
    if UNIT_POS_X == 0 {
        let mut sum = 0.0f32;
        for column in 0..key_dim {
            sum += sums[base + key_dim + column];
        }
        a_log[head] = sum;
    }
}

/// The gradients of `a_log`, `[HV]`, and `dt_bias`, `[HV, K]`.
pub(super) fn gate_gradients(
    inputs: &Inputs,
    mut sums: CubeTensor,
    mut rows: usize,
) -> [CubeTensor; 2] {
    let sizes = inputs.sizes;
    let columns = sizes.value_heads * 2 * sizes.key_dim;
    while rows > 1 {
        let fewer = rows.div_ceil(ROWS);
        let output = inputs.scratch(fewer * columns);
        let cubes = CubeCount::Static(columns.div_ceil(UNITS) as u32, fewer as u32, 1);
        unsafe {
            add_rows::launch_unchecked(
                inputs.client(),
                cubes,
                CubeDim::new_1d(UNITS as u32),
                address_type(&[&sums, &output]),
                sums.into_buffer_arg(),
                output.clone().into_buffer_arg(),
                rows,
                columns,
            )
        };
        (sums, rows) = (output, fewer);
    }
    let [a_log, dt_bias] = [
        vec![sizes.value_heads],
        vec![sizes.value_heads, sizes.key_dim],
    ]
    .map(|shape| {
        let (client, device) = (inputs.v.client.clone(), inputs.v.device.clone());
        empty_device_contiguous_dtype(client, device, Shape::from(shape), DType::F32)
    });
    unsafe {
        split::launch_unchecked(
            inputs.client(),
            CubeCount::Static(sizes.value_heads as u32, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            sums.into_buffer_arg(),
            a_log.clone().into_buffer_arg(),
            dt_bias.clone().into_buffer_arg(),
            sizes.key_dim,
        )
    };
    [a_log, dt_bias]
}
