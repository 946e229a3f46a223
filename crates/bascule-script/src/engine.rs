//! The JavaScript machine with everything around a script, before there is a script.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use rquickjs::loader::Loader;
use rquickjs::loader::bundle::{Bundle, ScaBundleData};
use rquickjs::{Context, Ctx, Function, Object, Persistent, Runtime};

use crate::natives::natives;
use crate::state::State;

/// How deep a script may recurse, in bytes of stack.
const STACK: usize = 2 << 20;

/// How much there may be before what is no longer used is looked for. The prelude alone would be looked through several
/// times, for nothing.
pub(crate) const LOOK_THROUGH: usize = 4 << 20;

/// The parts of the prelude by their names, as the engine's own code. `build.rs` makes it.
const PRELUDE: ScaBundleData<&[u8]> = include!(concat!(env!("OUT_DIR"), "/prelude.rs"));

/// One script's machine.
pub(crate) struct Engine {
    pub(crate) harness: Harness,
    pub(crate) context: Context,
    pub(crate) runtime: Runtime,
    pub(crate) state: Rc<State>,
    pub(crate) clock: Rc<Clock>,
}

/// When a script must have ended.
#[derive(Default)]
pub(crate) struct Clock {
    deadline: Cell<Option<Instant>>,
    has_struck: Cell<bool>,
}

impl Clock {
    pub(crate) fn set(&self, deadline: Instant) {
        self.deadline.set(Some(deadline));
    }

    /// Whether it is over. Once it is, it stays so.
    pub(crate) fn strikes(&self) -> bool {
        let over = self.deadline.get().is_some_and(|deadline| Instant::now() >= deadline);
        self.has_struck.set(self.has_struck.get() || over);
        self.has_struck.get()
    }
}

/// The functions of the harness that the worker calls.
pub(crate) struct Harness {
    pub(crate) furnish: Persistent<Function<'static>>,
    pub(crate) settle: Persistent<Function<'static>>,
    pub(crate) fire: Persistent<Function<'static>>,
    pub(crate) describe: Persistent<Function<'static>>,
    pub(crate) value_text: Persistent<Function<'static>>,
}

impl Engine {
    pub(crate) fn new() -> rquickjs::Result<Self> {
        let (runtime, state, clock) = (Runtime::new()?, Rc::new(State::new()), Rc::new(Clock::default()));
        runtime.set_max_stack_size(STACK);
        runtime.set_gc_threshold(LOOK_THROUGH);
        let ticking = clock.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || ticking.strikes())));
        let noting = state.clone();
        runtime.set_host_promise_rejection_tracker(Some(Box::new(move |ctx, promise, reason, is_heard| {
            let promise = Persistent::save(&ctx, promise);
            match is_heard {
                true => noting.was_heard(&promise),
                false => noting.note_unheard(promise, Persistent::save(&ctx, reason)),
            }
        })));
        let context = Context::full(&runtime)?;
        let harness = context.with(|ctx| Harness::build(&ctx, &state))?;
        Ok(Self { harness, context, runtime, state, clock })
    }
}

impl Harness {
    /// Evaluates the prelude. What its parts give each other, no script can reach.
    fn build<'js>(ctx: &Ctx<'js>, state: &Rc<State>) -> rquickjs::Result<Self> {
        let native = natives(ctx, state)?;
        let own: Object = part(ctx, "primordials")?.call(())?;
        let stacks: Object = part(ctx, "stacks")?.call((native.clone(), own.clone()))?;
        let console: Object = part(ctx, "console")?.call((native.clone(), own.clone()))?;
        let timers: Object = part(ctx, "timers")?.call((native.clone(), own.clone()))?;
        part(ctx, "web")?.call::<_, ()>((native.clone(), own.clone()))?;
        let show: Function = console.get("show")?;
        let sleep: Function = timers.get("sleep")?;
        let tools: Object = part(ctx, "tools")?.call((native, own.clone(), stacks, show, sleep))?;
        part(ctx, "lockdown")?.call::<_, ()>((own,))?;
        load_zone(ctx)?;
        let keep = |from: &Object<'js>, name: &str| -> rquickjs::Result<_> {
            Ok(Persistent::save(ctx, from.get::<_, Function>(name)?))
        };
        Ok(Self {
            furnish: keep(&tools, "furnish")?,
            settle: keep(&tools, "settle")?,
            fire: keep(&timers, "fire")?,
            describe: keep(&tools, "describe")?,
            value_text: keep(&tools, "valueText")?,
        })
    }
}

/// A part is a function, compiled when we were built: to read its text would take longer than all the rest. The engine
/// itself is given no loader, and scripts that import are refused before they run (`typescript`).
fn part<'js>(ctx: &Ctx<'js>, name: &str) -> rquickjs::Result<Function<'js>> {
    let (module, _) = Bundle(PRELUDE).load(ctx, name, None)?.eval()?;
    module.get("default")
}

/// Local time is read from a file, which a locked process cannot open any more.
fn load_zone(ctx: &Ctx<'_>) -> rquickjs::Result<()> {
    ctx.eval::<i32, _>("new Date().getHours()").map(|_| ())
}
