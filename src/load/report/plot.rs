//! Plots as SVG; the page sets the colours for light and dark mode. Each plot is drawn in two
//! widths, of which the page shows one, so that texts keep their size on a narrow screen.

use super::axis::{Axis, AxisRange};

const LEFT: f64 = 58.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 42.0;
/// Number of line colours in the page.
pub(super) const COLOURS: usize = 6;

/// The widths of each plot, in CSS pixels.
const WIDE: PlotSize = PlotSize { class: "on-wide", width: 760.0, height: 280.0 };
const NARROW: PlotSize = PlotSize { class: "on-narrow", width: 370.0, height: 240.0 };

struct PlotSize {
    class: &'static str,
    width: f64,
    height: f64,
}

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LineStyle {
    /// A solid line in the colour with this number.
    Solid(usize),
    /// A dashed line in the colour with this number.
    Dashed(usize),
    /// A thin grey line: the wanted value.
    Wanted,
}

impl LineStyle {
    fn class(self) -> String {
        match self {
            LineStyle::Solid(number) => format!("s{}", number % COLOURS),
            LineStyle::Dashed(number) => format!("s{} dashed", number % COLOURS),
            LineStyle::Wanted => "wanted dashed".to_owned(),
        }
    }
}

/// A line of a plot. It is interrupted where y is not finite.
pub(super) struct PlotLine {
    pub name: String,
    pub style: LineStyle,
    pub points: Vec<DrawnPoint>,
}

/// A plot of lines over two axes.
pub(super) struct LinePlot<'a> {
    /// The title.
    pub title: &'a str,
    /// One sentence that describes the plot.
    pub caption: &'a str,
    pub x: Axis<'a>,
    pub y: Axis<'a>,
    pub lines: Vec<PlotLine>,
    /// The value of x up to which the plot is shaded: the warm-up; 0: none.
    pub shaded_to: f64,
    /// True: a dot marks each point.
    pub has_dots: bool,
}

/// A point in values or in pixels.
pub(super) type DrawnPoint = (f64, f64);

impl LinePlot<'_> {
    /// True: the plot has a value to show.
    pub fn has_values(&self) -> bool {
        self.lines.iter().any(|line| line.points.iter().any(|(_, y)| y.is_finite()))
    }

    /// The plot as an HTML figure: title, names of the lines, drawing, caption.
    pub fn figure(&self) -> String {
        let names: String = if self.lines.len() < 2 {
            String::new()
        } else {
            let name = |line: &PlotLine| {
                format!("<li><i class=\"{}\"></i>{}</li>", line.style.class(), escaped(&line.name))
            };
            format!("<ul class=\"legend\">{}</ul>", self.lines.iter().map(name).collect::<String>())
        };
        format!(
            "<figure><h3>{}</h3>{names}{}{}<figcaption>{}</figcaption></figure>\n",
            escaped(self.title),
            self.svg(&WIDE),
            self.svg(&NARROW),
            escaped(self.caption)
        )
    }

    fn svg(&self, size: &PlotSize) -> String {
        let all = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let (right, bottom) = (size.width - RIGHT, size.height - BOTTOM);
        let x = AxisRange::of(self.x.scale, all().map(|(x, _)| x), (right - LEFT) / 55.0);
        let y = AxisRange::of(self.y.scale, all().map(|(_, y)| y), 5.0);
        let left_of = |value: f64| LEFT + x.position(value) * (right - LEFT);
        let top_of = |value: f64| bottom - y.position(value) * (bottom - TOP);
        let mut svg = format!(
            "<svg class=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
            size.class,
            size.width,
            size.height,
            escaped(self.title)
        );
        if self.shaded_to > 0.0 {
            svg.push_str(&format!(
                "<rect class=\"shade\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" \
                 height=\"{:.1}\"/>",
                left_of(self.shaded_to) - LEFT,
                bottom - TOP
            ));
        }
        for mark in &x.marks {
            let left = left_of(*mark);
            svg.push_str(&stroke("grid", (left, TOP), (left, bottom)));
            // Keeps the text of the last mark inside the drawing.
            let is_last = left > right - 12.0;
            let (left, anchor) = if is_last { (right + 12.0, "end") } else { (left, "middle") };
            svg.push_str(&words("tick", (left, bottom + 16.0), anchor, &x.text_of(*mark)));
        }
        for mark in &y.marks {
            let top = top_of(*mark);
            svg.push_str(&stroke("grid", (LEFT, top), (right, top)));
            svg.push_str(&words("tick", (LEFT - 6.0, top + 4.0), "end", &y.text_of(*mark)));
        }
        let middle = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        svg.push_str(&words("label", (middle.0, size.height - 8.0), "middle", self.x.label));
        let turned = words("label", (-middle.1, 13.0), "middle", self.y.label);
        svg.push_str(&format!("<g transform=\"rotate(-90)\">{turned}</g>"));
        for line in &self.lines {
            let class = line.style.class();
            for piece in line.points.split(|(_, y)| !y.is_finite()) {
                let drawn: Vec<DrawnPoint> =
                    piece.iter().map(|(px, py)| (left_of(*px), top_of(*py))).collect();
                svg.push_str(&drawn_line(&class, &drawn));
                // A line of one point is invisible without a dot.
                let dots = if self.has_dots || drawn.len() == 1 { &drawn[..] } else { &[] };
                for (left, top) in dots {
                    svg.push_str(&format!(
                        "<circle class=\"dot {class}\" cx=\"{left:.1}\" cy=\"{top:.1}\" r=\"2\"/>"
                    ));
                }
            }
        }
        svg.push_str("</svg>");
        svg
    }
}

fn drawn_line(class: &str, points: &[DrawnPoint]) -> String {
    if points.len() < 2 {
        return String::new();
    }
    let points: Vec<String> =
        points.iter().map(|(left, top)| format!("{left:.1},{top:.1}")).collect();
    format!("<polyline class=\"line {class}\" points=\"{}\"/>", points.join(" "))
}

/// A straight line.
fn stroke(class: &str, from: DrawnPoint, to: DrawnPoint) -> String {
    format!(
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    )
}

/// A text; `anchor` is the end of the text that is at the point.
fn words(class: &str, at: DrawnPoint, anchor: &str, text: &str) -> String {
    format!(
        "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
        at.0,
        at.1,
        escaped(text)
    )
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
