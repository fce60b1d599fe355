//! Terminal text with colours -> SVG. Pure.
use std::fmt::Write as _;

const CHARACTER: f64 = 8.43;
const LINE: usize = 19;
const MARGIN: usize = 18;
const BAR: usize = 30;

/// Draws `screen` as a terminal window that is wide enough for it.
pub(super) fn draw(screen: &str) -> String {
    let lines: Vec<&str> = screen.lines().collect();
    let columns = lines.iter().map(|line| visible(line)).max().unwrap_or(0);
    let width = (columns as f64 * CHARACTER) as usize + 2 * MARGIN;
    let height = lines.len() * LINE + BAR + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1b1f27\"/>\n\
<circle cx=\"20\" cy=\"17\" r=\"6\" fill=\"#ff5f57\"/><circle cx=\"40\" cy=\"17\" r=\"6\" fill=\"#febc2e\"/><circle cx=\"60\" cy=\"17\" r=\"6\" fill=\"#28c840\"/>\n\
<g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" fill=\"#d7dae0\" xml:space=\"preserve\">\n"
    );
    for (number, line) in lines.iter().enumerate() {
        let y = BAR + MARGIN + number * LINE;
        svg += &format!("<text x=\"{MARGIN}\" y=\"{y}\">{}</text>\n", spans(line));
    }
    svg + "</g>\n</svg>\n"
}

/// One line with its colours as spans.
fn spans(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let mut out = escape(parts.next().unwrap_or_default());
    let mut style = Style::default();
    for part in parts {
        let Some((codes, text)) =
            part.split_once(|character: char| character.is_ascii_alphabetic())
        else {
            continue;
        };
        if part.chars().nth(codes.len()) == Some('m') {
            style.apply(codes);
        }
        if !text.is_empty() {
            out += &format!("<tspan{}>{}</tspan>", style.attributes(), escape(text));
        }
    }
    out
}

/// Characters of a line that take room.
fn visible(line: &str) -> usize {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default().chars().count();
    let rest =
        parts.filter_map(|part| part.split_once(|character: char| character.is_ascii_alphabetic()));
    first + rest.map(|(_, text)| text.chars().count()).sum::<usize>()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[derive(Default)]
struct Style {
    bold: bool,
    dim: bool,
    colour: Option<&'static str>,
}

impl Style {
    fn apply(&mut self, codes: &str) {
        for code in codes.split(';') {
            match code {
                "" | "0" => *self = Self::default(),
                "1" => self.bold = true,
                "2" => self.dim = true,
                "22" => (self.bold, self.dim) = (false, false),
                "31" | "91" => self.colour = Some("#ff7b72"),
                "32" | "92" => self.colour = Some("#7ee787"),
                "33" | "93" => self.colour = Some("#e3b341"),
                "34" | "94" => self.colour = Some("#79c0ff"),
                "35" | "95" => self.colour = Some("#d2a8ff"),
                "36" | "96" => self.colour = Some("#76e3ea"),
                "39" => self.colour = None,
                _ => {}
            }
        }
    }

    fn attributes(&self) -> String {
        let mut attributes = String::new();
        if self.bold {
            attributes += " font-weight=\"bold\"";
        }
        if self.dim {
            attributes += " opacity=\"0.6\"";
        }
        if let Some(colour) = self.colour {
            // A string takes all that is written to it.
            let _infallible = write!(attributes, " fill=\"{colour}\"");
        }
        attributes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_spans_and_text_is_escaped() {
        let drawn = spans("a<b \x1b[1;32mok\x1b[0m & \x1b[2Kc");
        assert_eq!(
            drawn,
            "a&lt;b <tspan font-weight=\"bold\" fill=\"#7ee787\">ok</tspan><tspan> &amp; </tspan><tspan>c</tspan>"
        );
    }

    #[test]
    fn colours_take_no_room() {
        assert_eq!(visible("ab\x1b[1;32mok\x1b[0m~"), 5);
    }

    #[test]
    fn every_line_is_drawn() {
        assert_eq!(draw("a\nb\n\nc").matches("<text").count(), 4);
    }
}
