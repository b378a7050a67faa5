//! Plots as SVG, whose colours the page around them chooses for light and dark.

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// Colours of lines that the page has.
const COLOURS: usize = 6;

/// How values are placed on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AxisScale {
    /// In proportion, from 0 on.
    Linear,
    /// By their logarithm.
    Log,
    /// Shares of 1, by the number of their nines.
    Nines,
}

/// An axis.
pub(super) struct Axis<'a> {
    pub label: &'a str,
    pub scale: AxisScale,
}

/// A line of a plot.
pub(super) struct PlotLine {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A plot of lines over two axes.
pub(super) struct LinePlot<'a> {
    /// What it shows, for readers who do not see it.
    pub title: &'a str,
    pub x: Axis<'a>,
    pub y: Axis<'a>,
    pub lines: Vec<PlotLine>,
}

/// The range of an axis, and the values that are marked on it.
struct AxisRange {
    scale: AxisScale,
    from: f64,
    to: f64,
    marks: Vec<f64>,
}

impl AxisRange {
    fn of(scale: AxisScale, values: impl Iterator<Item = f64>) -> AxisRange {
        let (least, most) = values
            .filter(|value| match scale {
                AxisScale::Linear => value.is_finite(),
                AxisScale::Log => *value > 0.0 && value.is_finite(),
                // The slowest of all has no number of nines; it stands at the end.
                AxisScale::Nines => *value < 1.0,
            })
            .fold((f64::MAX, f64::MIN), |(least, most), one| (least.min(one), most.max(one)));
        let (least, most) = if least > most { (0.0, 1.0) } else { (least, most) };
        match scale {
            AxisScale::Linear => {
                let step = round_step(most.max(1e-9) / 5.0);
                let to = (most / step).ceil().max(1.0) * step;
                let marks = (0..=(to / step).round() as u32).map(|n| f64::from(n) * step).collect();
                AxisRange { scale, from: 0.0, to, marks }
            }
            AxisScale::Log => {
                let from = 10_f64.powf(least.max(1e-9).log10().floor());
                let to = 10_f64.powf(most.max(1e-9).log10().ceil()).max(from * 10.0);
                let decades = (to / from).log10().round() as i32;
                let marks = (0..=decades).map(|power| from * 10_f64.powi(power)).collect();
                AxisRange { scale, from, to, marks }
            }
            AxisScale::Nines => {
                let nines = (1.0 - most.min(1.0 - 1e-9)).log10().abs().ceil().clamp(1.0, 6.0);
                let marks = (0..=nines as i32).map(|n| 1.0 - 10_f64.powi(-n));
                let marks = marks.chain([0.5]).collect();
                AxisRange { scale, from: 0.0, to: 1.0 - 10_f64.powf(-nines), marks }
            }
        }
    }

    /// Where a value is, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let on = |value: f64| match self.scale {
            AxisScale::Linear => value,
            AxisScale::Log => value.max(self.from).log10(),
            AxisScale::Nines => -(1.0 - value.min(self.to)).log10(),
        };
        let (from, to) = (on(self.from), on(self.to));
        ((on(value) - from) / (to - from).max(1e-12)).clamp(0.0, 1.0)
    }

    fn mark(&self, value: f64) -> String {
        match self.scale {
            AxisScale::Nines if value == 0.0 => "0".to_owned(),
            AxisScale::Nines => {
                let percent = format!("{:.4}", value * 100.0);
                format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
            }
            AxisScale::Linear | AxisScale::Log => number(value),
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least this.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(power * 10.0)
}

/// A number for a mark of an axis.
fn number(value: f64) -> String {
    match value.abs() {
        small if small >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        small if small >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "" | "-" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// A point of the drawing.
type DrawnPoint = (f64, f64);

/// A straight line.
fn stroke(class: &str, from: DrawnPoint, to: DrawnPoint) -> String {
    format!(
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    )
}

/// A text; `anchor` says which end of it is at the point.
fn words(class: &str, at: DrawnPoint, anchor: &str, text: &str) -> String {
    format!(
        "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
        at.0,
        at.1,
        escaped(text)
    )
}

impl LinePlot<'_> {
    /// The plot as an SVG element.
    pub fn svg(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let x = AxisRange::of(self.x.scale, all().map(|(x, _)| x));
        let y = AxisRange::of(self.y.scale, all().map(|(_, y)| y));
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let left_of = |value: f64| LEFT + x.place(value) * (right - LEFT);
        let top_of = |value: f64| bottom - y.place(value) * (bottom - TOP);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escaped(self.title)
        );
        for mark in &x.marks {
            let left = left_of(*mark);
            svg.push_str(&stroke("grid", (left, TOP), (left, bottom)));
            svg.push_str(&words("tick", (left, bottom + 16.0), "middle", &x.mark(*mark)));
        }
        for mark in &y.marks {
            let top = top_of(*mark);
            svg.push_str(&stroke("grid", (LEFT, top), (right, top)));
            svg.push_str(&words("tick", (LEFT - 6.0, top + 4.0), "end", &y.mark(*mark)));
        }
        let middle = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        svg.push_str(&words("label", (middle.0, HEIGHT - 8.0), "middle", self.x.label));
        let turned = words("label", (-middle.1, 14.0), "middle", self.y.label);
        svg.push_str(&format!("<g transform=\"rotate(-90)\">{turned}</g>"));
        for (index, line) in self.lines.iter().enumerate() {
            let points: Vec<String> = line
                .points
                .iter()
                .map(|(px, py)| format!("{:.1},{:.1}", left_of(*px), top_of(*py)))
                .collect();
            svg.push_str(&format!(
                "<polyline class=\"line s{}\" points=\"{}\"><title>{}</title></polyline>",
                index % COLOURS,
                points.join(" "),
                escaped(&line.name)
            ));
        }
        svg.push_str(&self.legend());
        svg.push_str("</svg>");
        svg
    }

    /// The names of the lines, if there are several.
    fn legend(&self) -> String {
        let lines = if self.lines.len() < 2 { &[][..] } else { &self.lines };
        let entries = lines.iter().enumerate().map(|(index, line)| {
            let (left, top) = (LEFT + 12.0, TOP + 14.0 + 16.0 * index as f64);
            let sample =
                stroke(&format!("line s{}", index % COLOURS), (left, top), (left + 18.0, top));
            sample + &words("tick", (left + 24.0, top + 4.0), "start", &line.name)
        });
        entries.collect()
    }
}

/// A text for HTML and SVG, in content and in attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
