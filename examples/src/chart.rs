//! Loss curves as an SVG file.

use std::ops::Range;
use std::path::Path;

use plotters::coord::types::{RangedCoordf64, RangedCoordusize};
use plotters::prelude::*;

use crate::train::{MetricsLine, RunConfig, RunFolder, TrainError, read_metrics, write_atomically};

const SIZE: (u32, u32) = (960, 600);
const FONT: &str = "sans-serif";

/// One colour per run or arm; both of its curves have it.
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(23, 190, 207),
];

/// The curves of one run, or the mean of several.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What the legend calls it.
    pub label: String,
    /// Step and training loss, in nats per byte.
    pub train: Vec<(usize, f64)>,
    /// Step and validation loss, in nats per byte.
    pub validation: Vec<(usize, f64)>,
}

impl Curve {
    /// The curves of one run's metrics.
    pub fn from_metrics(label: impl Into<String>, lines: &[MetricsLine]) -> Self {
        let train = lines
            .iter()
            .filter_map(|line| Some((line.step, line.train_loss?.into())));
        let validation = lines
            .iter()
            .filter_map(|line| Some((line.step, line.validation_loss?)));
        Self {
            label: label.into(),
            train: train.collect(),
            validation: validation.collect(),
        }
    }
}

/// Draws the run in `folder` into its `loss.svg`.
pub(crate) fn draw_run(folder: &RunFolder, config: &RunConfig) -> Result<(), TrainError> {
    let settings = &config.settings;
    let title = format!(
        "{}, {} attention, {} residual, {:.2} M parameters",
        settings.train.optimizer.name(),
        settings.model.attention,
        settings.model.residual,
        config.parameters as f64 / 1e6
    );
    let curve = Curve::from_metrics(
        settings.train.optimizer.name(),
        &read_metrics(&folder.metrics_file())?,
    );
    draw(
        &folder.chart_file(),
        &title,
        &[curve],
        config.text.bigram_loss,
    )
}

/// Draws training (thin) and validation (thick, with points) losses over steps, and the bigram table's loss as
/// a horizontal line, and writes the file atomically.
///
/// # Errors
/// [`TrainError::Io`] if the file cannot be written, [`TrainError::Malformed`] if drawing fails.
pub fn draw(
    path: &Path,
    title: &str,
    curves: &[Curve],
    bigram_loss: f64,
) -> Result<(), TrainError> {
    let svg =
        render(title, curves, bigram_loss).map_err(|error| TrainError::malformed(path, error))?;
    write_atomically(path, svg.as_bytes())
}

type DrawingError = DrawingAreaErrorKind<std::io::Error>;

fn render(
    title: &str,
    curves: &[Curve],
    bigram_loss: f64,
) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let steps = last_step(curves);
        let mut chart = ChartBuilder::on(&area)
            .caption(title, (FONT, 20))
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(0..steps, loss_range(curves, bigram_loss))?;
        chart
            .configure_mesh()
            .x_desc("step")
            .y_desc("loss (nats per byte)")
            .axis_desc_style((FONT, 16))
            .label_style((FONT, 13))
            .y_label_formatter(&|loss| format!("{loss:.1}"))
            .light_line_style(RGBColor(238, 238, 238))
            .bold_line_style(RGBColor(214, 214, 214))
            .draw()?;
        draw_bigram(&mut chart, steps, bigram_loss)?;
        for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
            draw_curve(&mut chart, curve, *colour)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(160, 160, 160))
            .label_font((FONT, 14))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

type LossChart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordusize, RangedCoordf64>>;

fn draw_bigram(chart: &mut LossChart, steps: usize, loss: f64) -> Result<(), DrawingError> {
    let style = BLACK.stroke_width(1);
    chart
        .draw_series(LineSeries::new([(0, loss), (steps, loss)], style))?
        .label(format!("bigram table, validation ({loss:.3})"))
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
    Ok(())
}

fn draw_curve(chart: &mut LossChart, curve: &Curve, colour: RGBColor) -> Result<(), DrawingError> {
    let (thin, thick) = (colour.mix(0.45).stroke_width(1), colour.stroke_width(2));
    chart
        .draw_series(LineSeries::new(curve.train.iter().copied(), thin))?
        .label(format!("{}, train", curve.label))
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], thin));
    let last = curve
        .validation
        .last()
        .map_or(String::new(), |(_, loss)| format!(" ({loss:.3})"));
    chart
        .draw_series(LineSeries::new(curve.validation.iter().copied(), thick))?
        .label(format!("{}, validation{last}", curve.label))
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], thick));
    let points = curve
        .validation
        .iter()
        .map(|&point| Circle::new(point, 3, colour.filled()));
    chart.draw_series(points)?;
    Ok(())
}

fn last_step(curves: &[Curve]) -> usize {
    let steps = curves
        .iter()
        .flat_map(|curve| curve.train.iter().chain(&curve.validation))
        .map(|point| point.0);
    steps.max().unwrap_or(0).max(1)
}

/// Everything that is drawn, with a margin of a twentieth.
fn loss_range(curves: &[Curve], bigram_loss: f64) -> Range<f64> {
    let losses = || {
        let drawn = curves
            .iter()
            .flat_map(|curve| curve.train.iter().chain(&curve.validation));
        drawn.map(|point| point.1).chain([bigram_loss])
    };
    let (low, high) = (
        losses().fold(f64::INFINITY, f64::min),
        losses().fold(f64::NEG_INFINITY, f64::max),
    );
    let margin = ((high - low) / 20.0).max(0.05);
    (low - margin).max(0.0)..high + margin
}
