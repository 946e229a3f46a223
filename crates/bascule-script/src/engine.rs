//! The JavaScript engine and the prelude, ready before the script arrives.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rquickjs::loader::Loader;
use rquickjs::loader::bundle::{Bundle, ScaBundleData};
use rquickjs::{Context, Ctx, Function, Object, Persistent, Runtime};

use crate::natives::natives;
use crate::state::ScriptState;

/// Stack size for scripts, in bytes. It bounds recursion.
const STACK_SIZE: usize = 2 << 20;

/// Heap size before the first garbage collection. With the engine's default, evaluating the prelude alone would trigger
/// several useless collections.
pub(crate) const GC_THRESHOLD: usize = 4 << 20;

/// The modules of the prelude by name, as the engine's bytecode. `build.rs` compiles them.
const PRELUDE: ScaBundleData<&[u8]> = include!(concat!(env!("OUT_DIR"), "/prelude.rs"));

/// The engine for one script.
pub(crate) struct Engine {
    pub(crate) prelude: PreludeFunctions,
    pub(crate) context: Context,
    pub(crate) runtime: Runtime,
    pub(crate) state: Rc<ScriptState>,
    pub(crate) deadline: Rc<ScriptDeadline>,
}

#[derive(Default)]
pub(crate) struct ScriptDeadline {
    deadline: Cell<Option<Instant>>,
    has_passed: Cell<bool>,
    has_interrupted: Cell<bool>,
}

impl ScriptDeadline {
    pub(crate) fn set(&self, deadline: Instant) {
        self.deadline.set(Some(deadline));
    }

    /// Returns the time at which the script must have ended.
    pub(crate) fn get(&self) -> Option<Instant> {
        self.deadline.get()
    }

    /// Gives the worker time to describe a script that has reached its deadline.
    pub(crate) fn extend(&self, time: Duration) {
        self.deadline.set(Some(Instant::now() + time));
        self.has_passed.set(false);
    }

    pub(crate) fn has_passed(&self) -> bool {
        let has_passed = self.deadline.get().is_some_and(|deadline| Instant::now() >= deadline);
        self.has_passed.set(self.has_passed.get() || has_passed);
        self.has_passed.get()
    }

    /// Returns true if running code must be interrupted now.
    pub(crate) fn interrupts(&self) -> bool {
        let interrupts = self.has_passed();
        self.has_interrupted.set(self.has_interrupted.get() || interrupts);
        interrupts
    }

    /// Returns true if the deadline has interrupted code, not only the wait for timers or calls.
    pub(crate) fn has_interrupted(&self) -> bool {
        self.has_interrupted.get()
    }
}

/// The functions of the prelude that the worker calls.
pub(crate) struct PreludeFunctions {
    pub(crate) define_globals: Persistent<Function<'static>>,
    pub(crate) settle_call: Persistent<Function<'static>>,
    pub(crate) fire_timer: Persistent<Function<'static>>,
    pub(crate) describe_error: Persistent<Function<'static>>,
    pub(crate) value_to_json: Persistent<Function<'static>>,
    pub(crate) report_losses: Persistent<Function<'static>>,
    pub(crate) pending_calls: Persistent<Function<'static>>,
}

impl Engine {
    pub(crate) fn new() -> rquickjs::Result<Self> {
        let (runtime, state) = (Runtime::new()?, Rc::new(ScriptState::new()));
        let deadline = Rc::new(ScriptDeadline::default());
        runtime.set_max_stack_size(STACK_SIZE);
        runtime.set_gc_threshold(GC_THRESHOLD);
        let interrupt = deadline.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || interrupt.interrupts())));
        let tracker = state.clone();
        runtime.set_host_promise_rejection_tracker(Some(Box::new(
            move |ctx, promise, reason, is_handled| {
                let promise = Persistent::save(&ctx, promise);
                match is_handled {
                    true => tracker.remove_unhandled_rejection(&promise),
                    false => tracker.add_unhandled_rejection(promise, Persistent::save(&ctx, reason)),
                }
            },
        )));
        let context = Context::full(&runtime)?;
        let prelude = context.with(|ctx| PreludeFunctions::evaluate(&ctx, &state))?;
        Ok(Self { prelude, context, runtime, state, deadline })
    }
}

impl PreludeFunctions {
    /// Evaluates the prelude. Scripts cannot reach the objects that its modules pass to each other.
    fn evaluate<'js>(ctx: &Ctx<'js>, state: &Rc<ScriptState>) -> rquickjs::Result<Self> {
        let native = natives(ctx, state)?;
        let own: Object = module(ctx, "primordials")?.call(())?;
        let stacks: Object = module(ctx, "stacks")?.call((native.clone(), own.clone()))?;
        let console: Object = module(ctx, "console")?.call((native.clone(), own.clone()))?;
        let timers: Object = module(ctx, "timers")?.call((native.clone(), own.clone()))?;
        module(ctx, "web")?.call::<_, ()>((native.clone(), own.clone()))?;
        let show: Function = console.get("show")?;
        let sleep: Function = timers.get("sleep")?;
        let values: Object = module(ctx, "values")?.call((native.clone(), own.clone(), show.clone()))?;
        let tools: Object =
            module(ctx, "tools")?.call((native.clone(), own.clone(), stacks, show, sleep, values.clone()))?;
        module(ctx, "lazy")?.call::<_, ()>((native.clone(), own.clone()))?;
        module(ctx, "lockdown")?.call::<_, ()>((native, own))?;
        load_time_zone(ctx)?;
        let save = |from: &Object<'js>, name: &str| -> rquickjs::Result<_> {
            Ok(Persistent::save(ctx, from.get::<_, Function>(name)?))
        };
        Ok(Self {
            define_globals: save(&tools, "defineGlobals")?,
            settle_call: save(&tools, "settleCall")?,
            fire_timer: save(&timers, "fireTimer")?,
            describe_error: save(&tools, "describeError")?,
            value_to_json: save(&values, "valueToJson")?,
            report_losses: save(&values, "reportLosses")?,
            pending_calls: save(&tools, "pendingCalls")?,
        })
    }
}

/// Loads the function that a module of the prelude consists of, from bytecode: parsing its text would take longer than
/// everything else. The engine itself has no loader, and `typescript` refuses scripts that import.
pub(crate) fn module<'js>(ctx: &Ctx<'js>, name: &str) -> rquickjs::Result<Function<'js>> {
    let (module, _) = Bundle(PRELUDE).load(ctx, name, None)?.eval()?;
    module.get("default")
}

/// Makes the engine read the time zone file now: a locked process cannot open it.
fn load_time_zone(ctx: &Ctx<'_>) -> rquickjs::Result<()> {
    ctx.eval::<i32, _>("new Date().getHours()").map(|_| ())
}
