//! The printed form of a schedule: one line a read, and a line wherever a block closes.

use std::fmt;

use super::{Schedule, Source};

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.block_sizes();
        writeln!(
            f,
            "{} sub-layers in {} blocks",
            self.sublayers(),
            self.blocks()
        )?;
        writeln!(f, "  read  n  sources")?;
        for read in 0..self.sublayers() {
            let sources = self.sources(read);
            writeln!(f, "{read:>6} {:>2}  {}", sources.len(), list(&sources))?;
            if self.closes_block(read) {
                let block = self.block_of(read);
                writeln!(
                    f,
                    "           block {block} closes after sub-layer {read} (size {})",
                    sizes[block - 1]
                )?;
            }
        }
        let sources = self.sources(self.sublayers());
        write!(f, "output {:>2}  {}", sources.len(), list(&sources))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => write!(f, "embedding"),
            Self::Block(block) => write!(f, "block {block}"),
            Self::Partial(block) => write!(f, "partial {block}"),
        }
    }
}

/// Names the sources, with the finished blocks as a range: a deep stack has many.
fn list(sources: &[Source]) -> String {
    let finished = sources
        .iter()
        .filter(|source| matches!(source, Source::Block(_)))
        .count();
    let mut names = vec![Source::Embedding.to_string()];
    match finished {
        0 => {}
        1 => names.push(Source::Block(1).to_string()),
        _ => names.push(format!("blocks 1-{finished}")),
    }
    if let Some(partial @ Source::Partial(_)) = sources.last() {
        names.push(partial.to_string());
    }
    names.join(", ")
}
