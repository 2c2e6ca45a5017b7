//! States in and out of tiles.

use super::prepare::fill;
use burn_kimi_kernels::cpu::tile::Tile;

/// Copies rows of `width` numbers into the tile's rows from `first` on; what is behind them in a row becomes 0.
pub(super) fn fill_rows(tile: &mut Tile, first: usize, rows: &[f32], width: usize) {
    for (row, from) in rows.chunks_exact(width).enumerate() {
        fill(tile.row_mut(first + row), from);
    }
}

/// Copies the tile's rows out again.
pub(super) fn copy_rows(tile: &Tile, rows: &mut [f32], width: usize) {
    for (row, to) in rows.chunks_exact_mut(width).enumerate() {
        to.copy_from_slice(&tile.row(row)[..width]);
    }
}
