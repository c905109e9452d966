//! Two plots over load, as SVG: the first token's P99 on a logarithmic axis, and goodput. Medians over seeds as lines,
//! least and most as bars.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context, Result};

use super::{Figures, Measured, Measurement, table::spread};
use crate::statistics::Spread;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Room for the axes' words, left, above, right (the legend) and below.
const MARGINS: [f64; 4] = [64.0, 36.0, 170.0, 44.0];
/// Told apart by people who do not see all colours (Okabe and Ito).
const COLOURS: [&str; 8] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442"];

/// One plot.
struct Plot {
    suffix: &'static str,
    title: &'static str,
    scale: Scale,
    of: fn(&Figures) -> f64,
}

#[derive(Clone, Copy)]
enum Scale {
    Logarithmic,
    Percent,
}

const PLOTS: [Plot; 2] = [
    Plot { suffix: "ttft-p99", title: "First token, P99, ms", scale: Scale::Logarithmic, of: |f| f.ttft_p99 },
    Plot {
        suffix: "goodput",
        title: "Answers within the objective, %",
        scale: Scale::Percent,
        of: |f| f.goodput * 100.0,
    },
];

/// One file for each plot, named after the scenario's.
///
/// # Errors
/// The folder cannot be written.
pub fn write(measured: &Measured, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let stem = Path::new(&measured.scenario).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for plot in &PLOTS {
        let path = folder.join(format!("{stem}-{}.svg", plot.suffix));
        std::fs::write(&path, draw(measured, plot)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

struct Frame {
    loads: (f64, f64),
    /// Of the vertical axis, after [`Scale::of`].
    values: (f64, f64),
    scale: Scale,
}

impl Scale {
    fn of(self, value: f64) -> f64 {
        match self {
            Self::Logarithmic => value.max(1.0).log10(),
            Self::Percent => value,
        }
    }
}

impl Frame {
    fn of(measured: &Measured, plot: &Plot) -> Self {
        let loads = measured.points.iter().map(|measurement| measurement.point.load);
        let largest = |m: &Measurement| {
            let most = m.routers.iter().filter_map(|router| Some(spread(router, &plot.of)?.most));
            most.fold(1.0, f64::max)
        };
        let top = match plot.scale {
            Scale::Logarithmic => measured.points.iter().map(largest).fold(10.0, f64::max).log10().ceil(),
            Scale::Percent => 100.0,
        };
        let bottom = match plot.scale {
            Scale::Logarithmic => 1.0,
            Scale::Percent => 0.0,
        };
        let (low, high) = loads.fold((f64::MAX, f64::MIN), |(low, high), load| (low.min(load), high.max(load)));
        let high = if high > low { high } else { low + 0.01 };
        Self { loads: (low, high), values: (bottom, top), scale: plot.scale }
    }

    fn x(&self, load: f64) -> f64 {
        let [left, _, right, _] = MARGINS;
        left + (load - self.loads.0) / (self.loads.1 - self.loads.0) * (WIDTH - left - right)
    }

    fn y(&self, value: f64) -> f64 {
        let [_, above, _, below] = MARGINS;
        let share = (self.scale.of(value) - self.values.0) / (self.values.1 - self.values.0);
        HEIGHT - below - share.clamp(0.0, 1.0) * (HEIGHT - above - below)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Logarithmic => {
                (self.values.0 as i32..=self.values.1 as i32).map(|power| 10f64.powi(power)).collect()
            }
            Scale::Percent => (0..=5).map(|fifth| f64::from(fifth) * 20.0).collect(),
        }
    }
}

/// Writing to a string cannot fail, here and below.
fn draw(measured: &Measured, plot: &Plot) -> String {
    let frame = Frame::of(measured, plot);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{}\" y=\"20\" \
         font-size=\"14\">{}: {}</text>\n",
        MARGINS[0],
        escaped(&measured.title),
        escaped(plot.title)
    );
    axes(&mut svg, &frame, measured);
    let names = measured.points.first().map_or(&[][..], |measurement| &measurement.routers);
    for (number, name) in names.iter().map(|router| router.router.as_str()).enumerate() {
        let points = measured.points.iter().filter_map(|measurement| {
            let router = measurement.routers.iter().find(|router| router.router == name)?;
            Some((measurement.point.load, spread(router, &plot.of)?))
        });
        line(&mut svg, &frame, (number, name), &points.collect::<Vec<_>>());
    }
    svg + "</svg>\n"
}

fn axes(svg: &mut String, frame: &Frame, measured: &Measured) {
    let (left, right) = (frame.x(frame.loads.0), frame.x(frame.loads.1));
    for tick in frame.ticks() {
        let y = frame.y(tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{tick}</text>",
            left - 6.0,
            y + 4.0
        );
    }
    let bottom = HEIGHT - MARGINS[3];
    for load in measured.points.iter().map(|measurement| measurement.point.load) {
        let x = frame.x(load);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {bottom:.1}v5\" stroke=\"#555\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{:.0}</text>",
            bottom + 18.0,
            load * 100.0
        );
    }
    let middle = f64::midpoint(left, right);
    let _ = writeln!(
        svg,
        "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">load, % of the fleet's measured capacity</text>",
        HEIGHT - 8.0
    );
}

fn line(svg: &mut String, frame: &Frame, (number, name): (usize, &str), points: &[(f64, Spread)]) {
    let colour = COLOURS[number % COLOURS.len()];
    let mut path = String::new();
    for (place, (load, spread)) in points.iter().enumerate() {
        let (x, y) = (frame.x(*load), frame.y(spread.median));
        let _ = write!(path, "{}{x:.1} {y:.1}", if place == 0 { "M" } else { "L" });
        let (low, high) = (frame.y(spread.least), frame.y(spread.most));
        let _ = writeln!(svg, "<path d=\"M{x:.1} {low:.1}V{high:.1}\" stroke=\"{colour}\" stroke-opacity=\".5\"/>");
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
    }
    let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
    let (x, y) = (WIDTH - MARGINS[2] + 12.0, MARGINS[1] + 14.0 + 18.0 * number as f64);
    let _ = writeln!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
        y - 4.0,
        x + 10.0,
        escaped(name)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
