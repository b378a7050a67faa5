//! Reads reports of earlier runs, joins them into one, and names their targets.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{LoadReport, REPORT_SCHEMA, SourceReport, TargetReport};

/// The member that every report has, whatever its schema.
#[derive(Deserialize)]
struct ReportNumber {
    schema: u32,
}

impl LoadReport {
    /// Reads a JSON report.
    ///
    /// # Errors
    /// One sentence: the JSON is not a report, or has another schema.
    pub fn read(json: &[u8]) -> Result<LoadReport, String> {
        let ReportNumber { schema } = serde_json::from_slice(json)
            .map_err(|error| format!("it is not a JSON report of peregrine bench: {error}"))?;
        if schema != REPORT_SCHEMA {
            return Err(format!(
                "the report has schema {schema}, but this version reads schema {REPORT_SCHEMA}"
            ));
        }
        serde_json::from_slice(json)
            .map_err(|error| format!("it is not a complete report of schema {schema}: {error}"))
    }

    /// Joins reports, each with the name of its file, into one report with all targets. A single
    /// report is returned unchanged.
    pub fn join(reports: Vec<(String, LoadReport)>, command: &str) -> Option<LoadReport> {
        let is_single = reports.len() == 1;
        let mut joined: Option<LoadReport> = None;
        for (file, mut report) in reports {
            if is_single {
                return Some(report);
            }
            let source = SourceReport { file, ..report.source() };
            for target in &mut report.targets {
                target.source.get_or_insert_with(|| source.clone());
            }
            let all = joined.get_or_insert_with(|| LoadReport {
                command: command.to_owned(),
                targets: Vec::new(),
                comparisons: Vec::new(),
                ..report.clone()
            });
            all.targets.extend(report.targets);
            all.comparisons.extend(report.comparisons);
            all.started_at = all.started_at.clone().min(report.started_at);
        }
        joined
    }

    /// The circumstances of the run of this report.
    pub(super) fn source(&self) -> SourceReport {
        SourceReport {
            file: String::new(),
            generator: self.generator.clone(),
            started_at: self.started_at.clone(),
            command: self.command.clone(),
            machine: self.machine.clone(),
        }
    }

    /// A unique name of each target: its URL, interface, plan or file, whichever first
    /// distinguishes all targets, or several of these.
    pub(super) fn names(&self) -> Vec<String> {
        let parts: [fn(&TargetReport) -> String; 4] = [
            |target| target.url.clone(),
            |target| target.interface.clone(),
            |target| target.plan.name.clone(),
            |target| target.source.as_ref().map_or_else(String::new, |source| source.file.clone()),
        ];
        let parts = parts.map(|part| self.targets.iter().map(part).collect::<Vec<String>>());
        if let Some(alone) = parts.iter().find(|part| are_distinct(part)) {
            return alone.clone();
        }
        // A part that all targets have in common does not distinguish them.
        let telling: Vec<_> =
            parts.iter().filter(|part| part.windows(2).any(|pair| pair[0] != pair[1])).collect();
        let joined = |index: usize| {
            let parts = telling.iter().map(|part| part[index].as_str());
            parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
        };
        let names: Vec<String> = (0..self.targets.len()).map(joined).collect();
        if are_distinct(&names) {
            return names;
        }
        let numbered = names.iter().enumerate();
        numbered
            .map(|(index, name)| format!("{name} #{}", index + 1).trim_start().to_owned())
            .collect()
    }
}

fn are_distinct(names: &[String]) -> bool {
    names.iter().collect::<BTreeSet<_>>().len() == names.len()
}
