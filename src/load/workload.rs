//! Workloads: TOML files that describe load in phases, so that published figures can be compared.
//! The program includes the workload `a2a-bench-1`.

use std::time::Duration;

use serde::Deserialize;

use super::{
    Arrivals, LoadOperation, LoadPace, LoadPlan, PayloadShape, PayloadSize, PlannedCall, RateSpan,
};

/// The included workloads: their names and texts.
const INCLUDED: &[(&str, &str)] = &[("a2a-bench-1", include_str!("a2a-bench-1.toml"))];

/// A workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The name, which a report shows.
    pub name: String,
    /// The version; figures of different versions are not comparable.
    pub version: u32,
    /// The phases, in order.
    #[serde(rename = "phase")]
    phases: Vec<WorkloadPhase>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadPhase {
    name: String,
    /// Calls per second.
    rate: Option<f64>,
    arrivals: Option<String>,
    burstiness: Option<f64>,
    /// Calls in flight, instead of a rate.
    concurrency: Option<usize>,
    /// Seconds during which calls are counted.
    seconds: Option<f64>,
    /// Seconds of the warm-up.
    warmup_seconds: Option<f64>,
    in_flight: Option<usize>,
    #[serde(rename = "call")]
    calls: Vec<PhaseCall>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseCall {
    operation: String,
    weight: Option<f64>,
    payload: Option<PayloadText>,
    shape: Option<String>,
    events: Option<u64>,
    chunk_bytes: Option<u64>,
    hold_ms: Option<u64>,
    subscribers: Option<usize>,
    batch: Option<usize>,
}

/// A number of bytes, or a distribution as text.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum PayloadText {
    Bytes(usize),
    Text(String),
}

impl Workload {
    /// The included workload of this name.
    pub fn known(name: &str) -> Option<Result<Workload, String>> {
        let (_, text) = INCLUDED.iter().find(|(included, _)| *included == name)?;
        Some(Workload::parse(text))
    }

    /// The names of the included workloads.
    pub fn names() -> impl Iterator<Item = &'static str> {
        INCLUDED.iter().map(|(name, _)| *name)
    }

    /// Reads a workload.
    ///
    /// # Errors
    /// A sentence with the error and its position.
    pub fn parse(text: &str) -> Result<Workload, String> {
        let workload: Workload = toml::from_str(text).map_err(|error| error.to_string())?;
        match workload.phases.is_empty() {
            true => Err("the workload has no [[phase]]".to_owned()),
            false => Ok(workload),
        }
    }

    /// The plans of the phases. `base` has the settings that a phase does not set: workers, seed,
    /// checks, and default times.
    ///
    /// # Errors
    /// A sentence with the error and its phase.
    pub fn plans(&self, base: &LoadPlan) -> Result<Vec<LoadPlan>, String> {
        let base = LoadPlan { workload_version: self.version, ..base.clone() };
        self.phases.iter().map(|phase| phase.plan(&self.name, &base)).collect()
    }
}

impl WorkloadPhase {
    fn plan(&self, workload: &str, base: &LoadPlan) -> Result<LoadPlan, String> {
        let wrong = |what: String| format!("phase {:?}: {what}", self.name);
        let calls: Result<Vec<PlannedCall>, String> =
            self.calls.iter().map(|call| call.planned().map_err(wrong)).collect();
        let calls = calls?;
        if calls.is_empty() {
            return Err(wrong("[[phase.call]] is missing".to_owned()));
        }
        let arrivals = arrivals(self.arrivals.as_deref(), self.burstiness).map_err(wrong)?;
        let pace = match (self.rate, self.concurrency) {
            (Some(_), Some(_)) => {
                return Err(wrong("a rate and a concurrency cannot be combined".to_owned()));
            }
            (Some(rate), None) if rate > 0.0 && rate <= RateSpan::RATE_MAX => {
                LoadPace::Rate(RateSpan::steady(rate, arrivals))
            }
            (Some(_), None) => {
                let most = RateSpan::RATE_MAX;
                return Err(wrong(format!("a rate must be above 0 and at most {most:.0}")));
            }
            (None, Some(_)) => LoadPace::Closed,
            (None, None) => base.pace,
        };
        let seconds = |seconds: Option<f64>, or: Duration| match seconds {
            None => Ok(or),
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|time| *time <= LoadPlan::TIME_MAX)
                .ok_or_else(|| {
                    wrong(format!("{seconds} must be a number of seconds up to a year"))
                }),
        };
        Ok(LoadPlan {
            name: format!("{workload}: {}", self.name),
            calls,
            pace,
            warmup: seconds(self.warmup_seconds, base.warmup)?,
            duration: seconds(self.seconds, base.duration)?,
            in_flight_max: self.concurrency.or(self.in_flight).unwrap_or(base.in_flight_max).max(1),
            ..base.clone()
        })
    }
}

impl PhaseCall {
    fn planned(&self) -> Result<PlannedCall, String> {
        let operation = LoadOperation::of_name(&self.operation)
            .ok_or_else(|| format!("unknown operation {:?}", self.operation))?;
        let usual = PlannedCall::new(operation);
        let weight = self.weight.unwrap_or(usual.weight);
        if !(weight > 0.0 && weight.is_finite()) {
            return Err(format!("the weight of {} must be above 0", self.operation));
        }
        let payload = match &self.payload {
            None => usual.payload,
            Some(PayloadText::Bytes(bytes)) => PayloadSize::Fixed(*bytes),
            Some(PayloadText::Text(text)) => PayloadSize::parse(text)?,
        };
        let shape = match self.shape.as_deref() {
            None => usual.shape,
            Some(text) => PayloadShape::parse(text)?,
        };
        let within = |name: &str, number: Option<usize>, usual: usize, most: usize| {
            let number = number.unwrap_or(usual);
            match (1..=most).contains(&number) {
                true => Ok(number),
                false => Err(format!("{name} is {number} and must be from 1 to {most}")),
            }
        };
        let subscribers_max = PlannedCall::SUBSCRIBERS_MAX;
        Ok(PlannedCall {
            weight,
            payload,
            shape,
            events: self.events.unwrap_or(usual.events).max(1),
            chunk_bytes: self.chunk_bytes.unwrap_or(usual.chunk_bytes),
            hold: self.hold_ms.map_or(usual.hold, Duration::from_millis),
            subscribers: within(
                "subscribers",
                self.subscribers,
                usual.subscribers,
                subscribers_max,
            )?,
            batch: within("batch", self.batch, usual.batch, PlannedCall::BATCH_MAX)?,
            ..usual
        })
    }
}

impl PayloadSize {
    /// Reads `1024`, `100..2000` or `lognormal:MEDIAN:SIGMA`.
    ///
    /// # Errors
    /// A sentence with the error.
    pub fn parse(text: &str) -> Result<PayloadSize, String> {
        let wrong = || {
            format!(
                "{text:?} must be a size such as 1024, 100..2000 or lognormal:800:1.0 (in bytes)"
            )
        };
        let bytes = |text: &str| text.trim().parse::<usize>().ok();
        let size = if let Some((least, most)) = text.split_once("..") {
            let (least, most) = (bytes(least).ok_or_else(wrong)?, bytes(most).ok_or_else(wrong)?);
            if least > most {
                return Err(wrong());
            }
            PayloadSize::Uniform(least, most)
        } else if let Some(rest) = text.strip_prefix("lognormal:") {
            let (median, sigma) = rest.split_once(':').ok_or_else(wrong)?;
            let number = |text: &str| text.parse::<f64>().ok().filter(|one| one.is_finite());
            let (median, sigma) =
                (number(median).ok_or_else(wrong)?, number(sigma).ok_or_else(wrong)?);
            if median < 1.0 || !(0.0..=10.0).contains(&sigma) {
                return Err(wrong());
            }
            PayloadSize::LogNormal { median, sigma }
        } else {
            PayloadSize::Fixed(bytes(text).ok_or_else(wrong)?)
        };
        let most = match size {
            PayloadSize::Fixed(bytes) | PayloadSize::Uniform(_, bytes) => bytes,
            PayloadSize::LogNormal { median, .. } => median as usize,
        };
        if most > PayloadSize::BYTES_MAX { Err(wrong()) } else { Ok(size) }
    }
}

impl PayloadShape {
    /// The name in options and files.
    pub const fn name(self) -> &'static str {
        match self {
            PayloadShape::Text => "text",
            PayloadShape::Data => "data",
            PayloadShape::File => "file",
        }
    }

    /// Reads `text`, `data` or `file`.
    ///
    /// # Errors
    /// A sentence with the error.
    pub fn parse(text: &str) -> Result<PayloadShape, String> {
        match text {
            "text" => Ok(PayloadShape::Text),
            "data" => Ok(PayloadShape::Data),
            "file" => Ok(PayloadShape::File),
            _ => Err(format!("{text:?} must be text, data or file")),
        }
    }
}

/// The arrivals with this name, or gamma arrivals with this shape.
///
/// # Errors
/// A sentence with the error.
pub fn arrivals(name: Option<&str>, burstiness: Option<f64>) -> Result<Arrivals, String> {
    match (name, burstiness) {
        (None | Some("gamma"), Some(shape)) if (0.01..=1_000.0).contains(&shape) => {
            Ok(Arrivals::Gamma(shape))
        }
        (None | Some("constant"), None) => Ok(Arrivals::Constant),
        (Some("poisson"), None) => Ok(Arrivals::Poisson),
        (_, Some(shape)) => {
            Err(format!("burstiness {shape} must be a shape of gamma arrivals from 0.01 to 1000"))
        }
        (Some(text), None) => Err(format!("arrivals {text:?} must be constant, poisson or gamma")),
    }
}
