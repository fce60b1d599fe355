//! `top`: a recording that is looked at while it runs, on a terminal; or once, as `stat` shows it.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::record;
use super::report::{LOSS_WORTH_SAYING, sort};
use super::stat::{Numbers, show};
use crate::exit::Outcome;
use crate::genome::Genome;
use crate::output::{Output, When};
use crate::plan::TopPlan;
use crate::record::Watcher;
use crate::report::{Report, Sort};
use crate::sink::Columns;
use crate::sink::top::{Key, Top};

pub(super) fn run(plan: &TopPlan, output: &Output) -> anyhow::Result<Outcome> {
    if plan.once {
        let numbers = Numbers {
            columns: Columns::Usual,
            sort: plan.sort.map(sort),
            limit: plan.limit.unwrap_or(0),
            json: plan.json,
            file: None,
        };
        return record::recorded(
            &plan.record,
            &|recorded| show(recorded, &plan.record, &numbers, output),
            output,
        );
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("top needs a terminal: with --once it prints what it has seen and ends");
    }
    let mut screen = Screen {
        terminal: None,
        view: Top::new(plan.sort.map_or(Sort::SelfCpu, sort)),
        interval: plan.interval,
    };
    // What is said while it runs would be lost on the page.
    let silent = Output::new(-1, When::Auto);
    let outcome = record::watched(&plan.record, &mut screen, &silent);
    drop(screen);
    outcome
}

/// The terminal, from the first look on, and what it shows.
struct Screen {
    terminal: Option<DefaultTerminal>,
    view: Top,
    interval: Duration,
}

impl Screen {
    fn draw(&mut self) -> anyhow::Result<()> {
        if let Some(terminal) = &mut self.terminal {
            let view = &self.view;
            terminal
                .draw(|frame| view.draw(frame))
                .context("drawing on the terminal")?;
        }
        Ok(())
    }
}

impl Watcher for Screen {
    fn interval(&self) -> Duration {
        self.interval
    }

    fn look(&mut self, genome: &Genome) -> anyhow::Result<()> {
        self.view.update(&Report::of(genome, LOSS_WORTH_SAYING));
        self.draw()
    }

    fn goes_on(&mut self) -> anyhow::Result<bool> {
        if self.terminal.is_none() {
            self.terminal = Some(ratatui::try_init().context("taking hold of the terminal")?);
            self.draw()?;
        }
        let mut seen = false;
        while event::poll(Duration::ZERO)? {
            seen = true;
            if let Event::Key(typed) = event::read()?
                && let Some(key) = key(typed)
                && !self.view.key(key)
            {
                return Ok(false);
            }
        }
        if seen {
            self.draw()?;
        }
        Ok(true)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal.take().is_some() {
            ratatui::restore();
        }
    }
}

fn key(typed: KeyEvent) -> Option<Key> {
    if typed.kind == KeyEventKind::Release {
        return None;
    }
    Some(match typed.code {
        KeyCode::Char('c') if typed.modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(letter) => Key::Char(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}
