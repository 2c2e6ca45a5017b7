//! Matrices that are columns of a larger one.

use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

/// How the columns of a weight `[in, out]` are divided into matrices that Muon orthogonalises apart.
///
/// A fused projection is several matrices that happen to lie side by side, and attention heads can be taken for matrices of their own (per-head Muon, as GLM-5 and
/// Kimi K3 train; their output projection is left whole). The scale of an update is that of its block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ColumnBlocks {
    /// Blocks of these widths, one behind the other: queries, keys and values, or gate and up.
    Split(Vec<usize>),
    /// So many blocks of equal width: the heads of a projection.
    Heads(usize),
    /// The projection has `heads` runs of columns, each with parts of these widths; the same part of all heads is a block. Of latent attention's `kv_b_proj`,
    /// whose runs are `[nope, value]`, that makes one matrix for keys and one for values.
    Parts {
        /// Columns of each part of a head.
        widths: Vec<usize>,
        /// Runs.
        heads: usize,
    },
    /// The same runs, with every part of every head a block.
    HeadParts {
        /// Columns of each part of a head.
        widths: Vec<usize>,
        /// Runs.
        heads: usize,
    },
}

impl ColumnBlocks {
    /// The widths of the blocks of a weight with so many columns, or `None` if they do not fit.
    pub(crate) fn widths(&self, columns: usize) -> Option<Vec<usize>> {
        let widths = match self {
            Self::Split(widths) => widths.clone(),
            Self::Heads(heads) => {
                let width = columns.checked_div(*heads)?;
                vec![width; *heads]
            }
            Self::Parts { widths, heads } => widths
                .iter()
                .map(|width| width.checked_mul(*heads))
                .collect::<Option<_>>()?,
            Self::HeadParts { widths, heads } => {
                let count = widths.len().checked_mul(*heads)?;
                if count > columns {
                    return None;
                }
                widths.repeat(*heads)
            }
        };
        let sum = widths.iter().try_fold(0usize, |sum, &w| sum.checked_add(w));
        (sum == Some(columns) && !widths.contains(&0)).then_some(widths)
    }

    /// The column that stands at each place once blocks lie one behind the other; `None` if they do already.
    fn order(&self) -> Option<Vec<usize>> {
        let Self::Parts { widths, heads } = self else {
            return None;
        };
        let run: usize = widths.iter().sum();
        let mut order = Vec::with_capacity(run * heads);
        let mut offset = 0;
        for width in widths {
            for head in 0..*heads {
                let first = head * run + offset;
                order.extend(first..first + width);
            }
            offset += width;
        }
        Some(order)
    }

    /// The blocks of `x: [E, n, m]`, each `[E, n, width]`. They must fit.
    pub(crate) fn cut(&self, x: Tensor<3>) -> Vec<Tensor<3>> {
        let [_, _, columns] = x.dims();
        let widths = self
            .widths(columns)
            .expect("the plan has checked that the blocks fit");
        let x = match self.order() {
            Some(order) => select_columns(x, &order),
            None => x,
        };
        x.split_with_sizes(widths, 2)
    }

    /// What [`cut`](Self::cut) cut.
    pub(crate) fn join(&self, blocks: Vec<Tensor<3>>) -> Tensor<3> {
        let x = Tensor::cat(blocks, 2);
        let Some(order) = self.order() else { return x };
        let mut back = vec![0; order.len()];
        for (place, column) in order.into_iter().enumerate() {
            back[column] = place;
        }
        select_columns(x, &back)
    }
}

fn select_columns(x: Tensor<3>, columns: &[usize]) -> Tensor<3> {
    let numbers: Vec<i64> = columns.iter().map(|&column| column as i64).collect();
    let length = numbers.len();
    let numbers = TensorData::new(numbers, [length]);
    x.clone()
        .select(2, Tensor::<1, Int>::from_data(numbers, &x.device()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    fn numbers(x: &Tensor<3>) -> Vec<f32> {
        x.clone().into_data().iter::<f32>().collect()
    }

    #[test]
    fn what_is_cut_is_joined_again() {
        let x = Tensor::<1, Int>::arange(0..2 * 3 * 12, &Device::default())
            .float()
            .reshape([2, 3, 12]);
        let (widths, heads) = (vec![1, 3], 3);
        for (blocks, count) in [
            (ColumnBlocks::Split(vec![5, 4, 3]), 3),
            (ColumnBlocks::Heads(4), 4),
            (
                ColumnBlocks::Parts {
                    widths: widths.clone(),
                    heads,
                },
                2,
            ),
            (ColumnBlocks::HeadParts { widths, heads }, 6),
        ] {
            let cut = blocks.cut(x.clone());
            assert_eq!(cut.len(), count);
            assert_eq!(numbers(&blocks.join(cut)), numbers(&x));
        }
    }

    #[test]
    fn parts_of_all_heads_are_one_block() {
        let x = Tensor::<3>::from_data([[[0., 1., 2., 3., 4., 5., 6., 7.]]], &Device::default());
        let parts = ColumnBlocks::Parts {
            widths: vec![1, 3],
            heads: 2,
        };
        let cut = parts.cut(x);
        assert_eq!(numbers(&cut[0]), [0., 4.]);
        assert_eq!(numbers(&cut[1]), [1., 2., 3., 5., 6., 7.]);
    }

    #[test]
    fn blocks_that_do_not_fit_are_found() {
        let parts = |widths: Vec<usize>, heads| ColumnBlocks::Parts { widths, heads };
        assert!(ColumnBlocks::Split(vec![5, 4]).widths(10).is_none());
        assert!(ColumnBlocks::Split(vec![10, 0]).widths(10).is_none());
        assert!(
            ColumnBlocks::Split(vec![usize::MAX, 11])
                .widths(10)
                .is_none()
        );
        assert!(ColumnBlocks::Heads(3).widths(10).is_none());
        assert!(ColumnBlocks::Heads(0).widths(10).is_none());
        assert!(ColumnBlocks::Heads(11).widths(10).is_none());
        assert!(parts(vec![2, 3], 3).widths(10).is_none());
        assert!(parts(vec![2, usize::MAX], 2).widths(10).is_none());
        assert_eq!(parts(vec![2, 3], 2).widths(10), Some(vec![4, 6]));
    }
}
