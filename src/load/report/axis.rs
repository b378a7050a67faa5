//! The axes of plots: the range of the values, the marks, and the positions of values.

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AxisScale {
    /// Linear, from 0 to a round number.
    Linear,
    /// Linear, from 0 to the maximum value: time.
    Exact,
    /// Logarithmic.
    Log,
    /// Shares of 1, by the number of nines: 0.99 has two.
    Nines,
}

/// An axis.
pub(super) struct Axis<'a> {
    pub label: &'a str,
    pub scale: AxisScale,
}

/// The range of an axis, and its marks.
pub(super) struct AxisRange {
    scale: AxisScale,
    from: f64,
    to: f64,
    pub marks: Vec<f64>,
}

impl AxisRange {
    /// The range of these values, with about `marks` marks.
    pub fn of(scale: AxisScale, values: impl Iterator<Item = f64>, marks: f64) -> AxisRange {
        let (least, most) = values
            .filter(|value| match scale {
                AxisScale::Linear | AxisScale::Exact => value.is_finite(),
                AxisScale::Log => *value > 0.0 && value.is_finite(),
                // The slowest value has a share of 1, with an infinite number of nines; its
                // position is the end.
                AxisScale::Nines => *value < 1.0,
            })
            .fold((f64::MAX, f64::MIN), |(least, most), one| (least.min(one), most.max(one)));
        let (least, most) = if least > most { (0.0, 1.0) } else { (least, most) };
        match scale {
            AxisScale::Linear => {
                let step = round_up(most.max(1e-9) / marks);
                // A line along the upper edge would be hard to see.
                let count = (most * 1.04 / step).ceil().max(1.0);
                AxisRange { scale, from: 0.0, to: count * step, marks: steps(step, count) }
            }
            AxisScale::Exact => {
                let step = round_up(most.max(1e-9) / marks);
                let count = (most / step).floor();
                AxisRange { scale, from: 0.0, to: most.max(1e-9), marks: steps(step, count) }
            }
            AxisScale::Log => {
                let from = round_down(least.max(1e-9));
                let to = round_up(most.max(1e-9)).max(from * 2.0);
                AxisRange { scale, from, to, marks: log_marks(from, to) }
            }
            AxisScale::Nines => {
                let nines = (1.0 - most.min(1.0 - 1e-9)).log10().abs().ceil().clamp(1.0, 6.0);
                let marks = (0..=nines as i32).map(|n| 1.0 - 10_f64.powi(-n));
                let marks = marks.chain([0.5]).collect();
                AxisRange { scale, from: 0.0, to: 1.0 - 10_f64.powf(-nines), marks }
            }
        }
    }

    /// The position of a value, from 0 to 1.
    pub fn position(&self, value: f64) -> f64 {
        let on = |value: f64| match self.scale {
            AxisScale::Linear | AxisScale::Exact => value,
            AxisScale::Log => value.max(self.from).log10(),
            AxisScale::Nines => -(1.0 - value.min(self.to)).log10(),
        };
        let (from, to) = (on(self.from), on(self.to));
        ((on(value) - from) / (to - from).max(1e-12)).clamp(0.0, 1.0)
    }

    /// The text of a mark.
    pub fn text_of(&self, value: f64) -> String {
        match self.scale {
            AxisScale::Nines if value == 0.0 => "0".to_owned(),
            AxisScale::Nines => {
                let percent = format!("{:.4}", value * 100.0);
                format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
            }
            AxisScale::Linear | AxisScale::Exact | AxisScale::Log => number(value),
        }
    }
}

fn steps(step: f64, count: f64) -> Vec<f64> {
    (0..=count as u32).map(|n| f64::from(n) * step).collect()
}

/// Powers of ten, and also 2 and 5 times these powers if the range has few decades.
fn log_marks(from: f64, to: f64) -> Vec<f64> {
    let decades = (to / from).log10();
    let between: &[f64] = if decades <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let first = from.log10().floor() as i32;
    let powers = first..=first + decades.ceil() as i32 + 1;
    let marks = powers.flat_map(|power| between.iter().map(move |one| one * 10_f64.powi(power)));
    marks.filter(|mark| (from * 0.999..=to * 1.001).contains(mark)).collect()
}

/// The smallest number that is not below `value`, among 1, 2 and 5 times the powers of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let rounded = [1.0, 2.0, 5.0].map(|one| one * power);
    rounded.into_iter().find(|one| *one >= value * 0.999).unwrap_or(power * 10.0)
}

/// The largest number that is not above `value`, among 1, 2 and 5 times the powers of ten.
fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let rounded = [5.0, 2.0, 1.0].map(|one| one * power);
    rounded.into_iter().find(|one| *one <= value * 1.001).unwrap_or(power)
}

/// A number as the text of a mark.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        large if large >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "" | "-" => "0".to_owned(),
        text => text.to_owned(),
    }
}
