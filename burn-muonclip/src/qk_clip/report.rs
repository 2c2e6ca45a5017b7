use core::fmt;

use super::Unclippable;

/// What one [`QkClip::apply`](super::QkClip::apply) found and did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QkClipReport {
    /// The threshold.
    pub threshold: f64,
    /// Every layer, in the order in which they were given.
    pub layers: Vec<LayerReport>,
    /// Layers that have nothing to clip, and why.
    pub skipped: Vec<(String, Unclippable)>,
}

/// A layer's heads.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LayerReport {
    /// The layer's name.
    pub name: String,
    /// Its query heads; empty if the layer recorded nothing in this step.
    pub heads: Vec<HeadReport>,
}

/// A head.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeadReport {
    /// Its largest logit, or where that was known not to reach the threshold without computing it, what it does not exceed. `-inf` if no pair was
    /// visible. If it is not finite otherwise, the head was left alone.
    pub largest: f32,
    /// What its logits were multiplied by; 1 for a head that was left alone.
    pub factor: f64,
    /// Whether it was ever clipped, now or before.
    pub ever_clipped: bool,
}

impl HeadReport {
    /// Whether it was clipped now.
    pub fn is_clipped(&self) -> bool {
        self.factor < 1.0
    }

    /// Whether its largest logit is NaN or `+inf`.
    pub fn is_broken(&self) -> bool {
        self.largest.is_nan() || self.largest == f32::INFINITY
    }
}

impl QkClipReport {
    fn heads(&self) -> impl Iterator<Item = &HeadReport> {
        self.layers.iter().flat_map(|layer| &layer.heads)
    }

    /// The largest logit of all heads, NaN and infinite ones left out; `None` if there is none.
    pub fn largest(&self) -> Option<f32> {
        let finite = self
            .heads()
            .map(|head| head.largest)
            .filter(|s| s.is_finite());
        finite.reduce(f32::max)
    }

    /// Heads that were clipped now.
    pub fn clipped(&self) -> usize {
        self.heads().filter(|head| head.is_clipped()).count()
    }

    /// The share of heads that were ever clipped, of all that reported now; 0 without any.
    pub fn share_ever_clipped(&self) -> f64 {
        let all = self.heads().count();
        let ever = self.heads().filter(|head| head.ever_clipped).count();
        if all == 0 {
            0.0
        } else {
            ever as f64 / all as f64
        }
    }

    /// Heads whose largest logit is NaN or infinite.
    pub fn broken(&self) -> impl Iterator<Item = (&str, usize)> {
        self.layers.iter().flat_map(|layer| {
            let heads = layer.heads.iter().enumerate();
            heads
                .filter(|(_, head)| head.is_broken())
                .map(|(at, _)| (layer.name.as_str(), at))
        })
    }
}

impl fmt::Display for QkClipReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for layer in &self.layers {
            if layer.heads.is_empty() {
                writeln!(f, "{}: nothing recorded", layer.name)?;
                continue;
            }
            write!(f, "{}:", layer.name)?;
            for head in &layer.heads {
                write!(f, " {:.1}", head.largest)?;
                if head.is_clipped() {
                    write!(f, " (clipped to {})", self.threshold)?;
                }
            }
            writeln!(f)?;
        }
        for (name, reason) in &self.skipped {
            writeln!(f, "{name}: skipped, {reason}")?;
        }
        Ok(())
    }
}
