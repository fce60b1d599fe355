//! Scopes as a Chrome trace (`chrome://tracing`, ui.perfetto.dev): callers and callees of each call. Stepping stretches time,
//! so that an instruction is drawn as long as a microsecond; when the call really began is in its arguments.

use serde_json::{Value, json};

use scalpel_scope::flow;
use scalpel_scope::outside::message::Call;
use scalpel_scope::symbol::Resolver;
use scalpel_scope::trace::Link;

use super::names::Names;
use super::show::Shown;

/// The document.
pub(super) fn document(shown: &Shown<'_>, names: &mut Names) -> String {
    let mut events = Vec::new();
    let mut now = 0;
    for (number, call) in shown.recorded.calls.iter().enumerate() {
        let mut one = One {
            pid: shown.pid.0,
            tid: call.tid,
            now,
            open: Vec::new(),
            events: &mut events,
        };
        one.all(number + 1, call, names);
        now = one.now + 1;
    }
    json!({"traceEvents": events, "otherData": {"unit": "1 instruction = 1 us"}}).to_string() + "\n"
}

struct One<'a> {
    pid: u32,
    tid: u32,
    now: u64,
    /// Where each open function returns to.
    open: Vec<Option<u64>>,
    events: &'a mut Vec<Value>,
}

impl One<'_> {
    fn all(&mut self, number: usize, call: &Call, names: &mut Names) {
        let symbols: Vec<String> = call
            .trace
            .code
            .iter()
            .map(|code| name(names, code.addr))
            .collect();
        let mut entered = Some(None);
        for step in &call.trace.steps {
            let Ok(at) = usize::try_from(step.code) else {
                continue;
            };
            if let Some(returns) = entered.take()
                && step.link != Link::Over
            {
                let arguments = json!({"call": number, "start_ns": call.begin_ns.to_string()});
                let symbol = symbols.get(at).map_or("", String::as_str);
                self.event("B", symbol, arguments);
                self.open.push(returns);
            }
            self.now += u64::from(step.count);
            let Some(code) = call.trace.code.get(at) else {
                continue;
            };
            let Some(instruction) = flow::decode(code.addr, &code.bytes) else {
                continue;
            };
            if flow::is_call(&instruction) {
                entered = Some(Some(instruction.next_ip()));
            } else if flow::is_return(&instruction) {
                let to = self.open.iter().rposition(|open| *open == Some(step.next));
                self.close(to.unwrap_or(self.open.len()));
            }
        }
        self.close(0);
    }

    fn close(&mut self, to: usize) {
        while self.open.len() > to {
            self.open.pop();
            self.event("E", "", json!({}));
        }
    }

    fn event(&mut self, phase: &str, name: &str, arguments: Value) {
        self.events.push(json!({
            "ph": phase, "name": name, "pid": self.pid, "tid": self.tid, "ts": self.now, "args": arguments
        }));
    }
}

fn name(names: &mut Names, addr: u64) -> String {
    let symbol = names.resolve(addr);
    symbol.map_or_else(|| format!("{addr:#x}"), |symbol| symbol.name)
}
