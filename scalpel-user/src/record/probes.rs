//! From what was chosen to what is asked of the kernel: ids, requests, and the functions left out, with the reason.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::event::{FuncId, Pid};
use crate::function::{ExitStrategy, FunctionInfo, FunctionTable};
use crate::image::SiteCost;
use crate::input::Bound;
use crate::kernel::attach::{ProbedFile, SiteRequest};
use crate::survey::{Survey, left_out_by};

/// What will be attached.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// Requests, one a function.
    pub requests: Vec<SiteRequest>,
    /// Functions that will not be watched.
    pub bounds: Vec<Bound>,
    /// Functions new to the table, to be logged before the first event.
    pub defined: Vec<(FuncId, Arc<FunctionInfo>)>,
    /// Functions whose return probe must go when something that throws is mapped.
    pub conditional: Vec<FuncId>,
    /// Where in `requests` a function is.
    by_func: FxHashMap<FuncId, usize>,
    /// Files that could not be held open, with the reason.
    pub unopened: Vec<(PathBuf, String)>,
}

/// Limits on the choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most functions to probe, and the name of the limit.
    pub most: Option<(usize, &'static str)>,
    /// Kernel pid filter for files that strangers map too.
    pub pid_filter: Option<Pid>,
}

/// Gives each chosen function its id and turns it into a request.
pub(super) fn requests(
    surveys: Vec<Survey>,
    functions: &mut FunctionTable,
    limits: Limits,
) -> Probes {
    let mut probes = Probes::default();
    for image in surveys.into_iter().flat_map(|survey| survey.images) {
        let file = match image.file.try_clone() {
            Ok(file) => Arc::new(ProbedFile::new(file, image.path.clone())),
            Err(error) => {
                probes
                    .unopened
                    .push((image.path.clone(), error.to_string()));
                continue;
            }
        };
        for chosen in image.chosen {
            let (exit, exit_reason) = (chosen.info.exit, chosen.info.exit_reason.clone());
            let func = define(&mut probes, functions, chosen.info);
            if let Some(index) = probes.by_func.get(&func).copied() {
                weaken(&mut probes, index, func, (exit, exit_reason));
                continue;
            }
            match chosen.site {
                Ok(site) => {
                    if chosen.rests_on_nothing_thrown {
                        probes.conditional.push(func);
                    }
                    probes.by_func.insert(func, probes.requests.len());
                    probes.requests.push(SiteRequest {
                        func,
                        file: Arc::clone(&file),
                        offset: site.offset,
                        stepped: site.cost == SiteCost::SingleStepped,
                        exit,
                        ret_offsets: chosen.ret_offsets,
                        heat: chosen.heat,
                        pid_filter: if image.main { None } else { limits.pid_filter },
                    });
                }
                Err(reason) => probes.bounds.push(Bound {
                    func,
                    since: None,
                    reason,
                }),
            }
        }
    }
    cut(&mut probes, limits.most);
    probes
}

fn define(probes: &mut Probes, functions: &mut FunctionTable, info: FunctionInfo) -> FuncId {
    let known = functions.len();
    let func = functions.insert(info);
    if functions.len() > known
        && let Some(info) = functions.get(func)
    {
        probes.defined.push((func, Arc::clone(info)));
    }
    func
}

/// One probe serves all processes that run the file: where one of them forbids the return probe, all do without.
fn weaken(
    probes: &mut Probes,
    index: usize,
    func: FuncId,
    (exit, exit_reason): (ExitStrategy, String),
) {
    let Some(request) = probes.requests.get_mut(index) else {
        return;
    };
    if request.exit != ExitStrategy::Return || exit == ExitStrategy::Return {
        return;
    }
    request.exit = ExitStrategy::EntryOnly;
    // Ids are given in rising order.
    let defined = probes.defined.binary_search_by_key(&func, |(id, _)| *id);
    if let Some((_, info)) = defined.ok().and_then(|at| probes.defined.get_mut(at)) {
        let info = Arc::make_mut(info);
        info.exit = ExitStrategy::EntryOnly;
        info.exit_reason = format!("in another process: {exit_reason}");
    }
}

/// Keeps the largest functions: they say most about a program and are called least.
fn cut(probes: &mut Probes, most: Option<(usize, &'static str)>) {
    let Some((most, limit)) = most else { return };
    if probes.requests.len() <= most {
        return;
    }
    probes
        .requests
        .sort_by_key(|request| Reverse(Reverse(request.heat)));
    for request in probes.requests.drain(most..) {
        probes.bounds.push(Bound {
            func: request.func,
            since: None,
            reason: left_out_by(limit),
        });
    }
}

/// How many of the requests see their calls end.
pub(super) fn with_exits(requests: &[SiteRequest]) -> usize {
    requests
        .iter()
        .filter(|request| {
            matches!(
                request.exit,
                ExitStrategy::Return | ExitStrategy::RetOffsets
            )
        })
        .count()
}
