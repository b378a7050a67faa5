//! The live view of a run at a terminal.
//!
//! Invariants: the view is on stderr, in the terminal's alternate screen, so that stdout has only
//! the report, and the previous lines of the terminal reappear. The terminal is restored when the
//! view is dropped, and before the message of a panic in any thread; nothing is drawn after that.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Stderr},
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use ratatui::{
    Frame, Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::Show,
        event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
        execute,
        terminal::{
            EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
        },
    },
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize},
    text::Line,
    widgets::{Block, Gauge, Paragraph, Sparkline},
};

use super::shown::ShownRun;

/// Maximum kinds of errors with a line of their own.
const ERROR_LINES_MAX: usize = 6;

/// True: the terminal shows the view and must be restored.
static IS_OPEN: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

/// The live view of a run.
pub struct LiveView {
    terminal: Terminal<CrosstermBackend<Stderr>>,
}

impl LiveView {
    /// Opens the view; `None` unless stderr is a capable terminal in the foreground.
    pub fn open() -> Option<LiveView> {
        if !can_show() {
            return None;
        }
        PANIC_HOOK.call_once(|| {
            let previous = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                restore();
                previous(info);
            }));
        });
        enable_raw_mode().ok()?;
        IS_OPEN.store(true, SeqCst);
        let terminal = execute!(io::stderr(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stderr())));
        match terminal {
            Ok(terminal) => Some(LiveView { terminal }),
            Err(_) => {
                restore();
                None
            }
        }
    }

    /// Draws the progress of a run.
    pub fn show(&mut self, shown: &ShownRun) {
        if IS_OPEN.load(SeqCst) {
            // Without a terminal the run continues without a view.
            let _ = self.terminal.draw(|frame| draw(shown, frame));
        }
    }

    /// Whether the user has pressed `q` or Ctrl-C, which is a key in raw mode.
    pub fn is_ended_by_user(&self) -> bool {
        while IS_OPEN.load(SeqCst) && event::poll(Duration::ZERO).unwrap_or(false) {
            match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
                    match key.code {
                        KeyCode::Char('q' | 'Q') => return true,
                        KeyCode::Char('c') if is_control => return true,
                        _ => {}
                    }
                }
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        false
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal; a second call does nothing.
fn restore() {
    if IS_OPEN.swap(false, SeqCst) {
        // Errors are ignored: a closed terminal need not be restored.
        let _ = execute!(io::stderr(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

fn can_show() -> bool {
    let can_draw = std::env::var_os("TERM").is_none_or(|term| term != "dumb" && !term.is_empty());
    io::stderr().is_terminal()
        && can_draw
        && is_in_foreground()
        && size().is_ok_and(|(columns, rows)| columns > 0 && rows > 0)
}

/// True: the process is in the foreground. The system would stop a background job that changes the
/// terminal.
#[cfg(unix)]
fn is_in_foreground() -> bool {
    rustix::termios::tcgetpgrp(io::stderr()).is_ok_and(|group| group == rustix::process::getpgrp())
}

#[cfg(not(unix))]
fn is_in_foreground() -> bool {
    true
}

fn error_lines(errors: &BTreeMap<String, u64>) -> Vec<Line<'static>> {
    if errors.is_empty() {
        return vec![Line::from("none").green()];
    }
    let mut errors: Vec<(&String, &u64)> = errors.iter().collect();
    errors.sort_by(|one, other| other.1.cmp(one.1));
    let mut lines: Vec<Line<'static>> = errors
        .iter()
        .take(ERROR_LINES_MAX)
        .map(|(kind, count)| Line::from(format!("{count} × {kind}")).red())
        .collect();
    if errors.len() > ERROR_LINES_MAX {
        let rest = errors.len() - ERROR_LINES_MAX;
        lines.push(Line::from(format!("and {rest} more kinds")).red());
    }
    lines
}

fn draw(shown: &ShownRun, frame: &mut Frame<'_>) {
    let [title, gauge, rate, latency, errors, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(2),
        Constraint::Max(8),
        Constraint::Max(8),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(shown.title.as_str()).bold(), title);
    let done = shown.elapsed.as_secs_f64() / shown.length.as_secs_f64().max(1e-9);
    let bar = Gauge::default()
        .gauge_style(Style::default().fg(Color::Blue))
        .ratio(done.clamp(0.0, 1.0))
        .label(shown.time_line());
    frame.render_widget(bar, Rect { height: 1.min(gauge.height), ..gauge });
    let rates: Vec<u64> = shown.rates.iter().map(|rate| rate.round() as u64).collect();
    let text = format!("Rate: {}", shown.rate_line());
    LineAndBars { text, values: &rates, color: Color::Cyan }.draw(frame, rate);
    let text = format!("Latency: {}", shown.latency_line());
    LineAndBars { text, values: &shown.p99_us, color: Color::Magenta }.draw(frame, latency);
    let list = Paragraph::new(error_lines(&shown.errors)).block(Block::new().title("Errors"));
    frame.render_widget(list, errors);
    frame.render_widget(Paragraph::new("q or Ctrl-C ends the run with its report").dim(), keys);
}

/// A line of text, and the last values as bars below it.
struct LineAndBars<'v> {
    text: String,
    values: &'v [u64],
    color: Color,
}

impl LineAndBars<'_> {
    fn draw(self, frame: &mut Frame<'_>, area: Rect) {
        let [line, bars, _] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Max(1)])
                .areas(area);
        frame.render_widget(Paragraph::new(self.text), line);
        let first = self.values.len().saturating_sub(usize::from(bars.width));
        let style = Style::default().fg(self.color);
        let sparkline = Sparkline::default().data(&self.values[first..]).style(style);
        frame.render_widget(sparkline, bars);
    }
}
