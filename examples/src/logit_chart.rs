//! The largest attention logit of every head over the steps, as an SVG file.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::train::{MetricsLine, TrainError, write_atomically};

const SIZE: (u32, u32) = (960, 500);
const FONT: &str = "sans-serif";

/// A head: the name of its layer, and its place there.
type HeadName = (String, usize);

/// Step and logit, and whether it was clipped.
type Point = (usize, f64, bool);

/// Draws the heads of `lines` and the threshold, and writes the file atomically. Without heads there is no file.
///
/// # Errors
/// [`TrainError::Io`] if the file cannot be written, [`TrainError::Malformed`] if drawing fails.
pub fn draw(path: &Path, lines: &[MetricsLine], threshold: f64) -> Result<(), TrainError> {
    let heads = heads(lines);
    if heads.is_empty() {
        return Ok(());
    }
    let svg = render(&heads, threshold).map_err(|error| TrainError::malformed(path, error))?;
    write_atomically(path, svg.as_bytes())
}

fn heads(lines: &[MetricsLine]) -> BTreeMap<HeadName, Vec<Point>> {
    let mut heads: BTreeMap<HeadName, Vec<Point>> = BTreeMap::new();
    for line in lines {
        for head in &line.heads {
            if let Some(logit) = head.logit {
                let points = heads.entry((head.layer.clone(), head.head)).or_default();
                points.push((line.step, logit.into(), head.clipped));
            }
        }
    }
    heads
}

fn render(
    heads: &BTreeMap<HeadName, Vec<Point>>,
    threshold: f64,
) -> Result<String, Box<dyn Error>> {
    let points = || heads.values().flatten();
    let last = points().map(|point| point.0).max().unwrap_or(1).max(1);
    let logits = || points().map(|point| point.1);
    let highest = logits().fold(threshold, f64::max) * 1.05;
    let lowest = logits().fold(0.0, f64::min);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption("largest attention logit of a step, by head", (FONT, 20))
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(0..last, lowest..highest)?;
        chart
            .configure_mesh()
            .x_desc("step")
            .y_desc("logit")
            .axis_desc_style((FONT, 16))
            .label_style((FONT, 13))
            .light_line_style(RGBColor(238, 238, 238))
            .bold_line_style(RGBColor(214, 214, 214))
            .draw()?;
        let limit = BLACK.stroke_width(1);
        chart
            .draw_series(LineSeries::new([(0, threshold), (last, threshold)], limit))?
            .label(format!("threshold ({threshold})"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], limit));
        for (index, ((layer, head), points)) in heads.iter().enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            let line = points.iter().map(|&(step, logit, _)| (step, logit));
            let clipped = points.iter().filter(|point| point.2);
            let count = clipped.clone().count();
            chart
                .draw_series(LineSeries::new(line, colour.stroke_width(1)))?
                .label(format!("{layer}, head {head} (clipped {count} times)"))
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(2))
                });
            let marks =
                clipped.map(|&(step, logit, _)| Circle::new((step, logit), 2, colour.filled()));
            chart.draw_series(marks)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(160, 160, 160))
            .label_font((FONT, 14))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
