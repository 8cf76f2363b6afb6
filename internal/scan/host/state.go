package host

// State is the activity of the host scanner.
type State string

// The states, as the specification spells them.
const (
	Idle        State = "Idle"
	RealTime    State = "Real-Time"
	RunningFull State = "Running Full"
)

// trigger is an event that may change the state.
type trigger string

const (
	triggerFullScan    trigger = "start a full scan"
	triggerRealTime    trigger = "start real-time scanning"
	triggerStop        trigger = "stop"
	triggerReset       trigger = "reset"
	triggerFullScanEnd trigger = "the full scan ends"
)

// condition is an additional condition of a transition.
type condition string

const (
	unconditional   condition = ""
	withPath        condition = "with a path"
	noPath          condition = "without a path"
	realTimeFollows condition = "real-time ran before or was asked for"
	nothingFollows  condition = "nothing was asked to follow"
)

// transition is a row of the table.
type transition struct {
	From      State
	Trigger   trigger
	Condition condition
	To        State
}

// transitions lists every transition. Others are refused: during a full scan a second one is, and
// real-time scanning with a path, which begins with one.
var transitions = []transition{
	{Idle, triggerFullScan, unconditional, RunningFull},
	{Idle, triggerRealTime, noPath, RealTime},
	{Idle, triggerRealTime, withPath, RunningFull},
	{Idle, triggerStop, unconditional, Idle},
	{Idle, triggerReset, unconditional, Idle},

	{RealTime, triggerFullScan, unconditional, RunningFull},
	{RealTime, triggerRealTime, noPath, RealTime},
	{RealTime, triggerRealTime, withPath, RunningFull},
	{RealTime, triggerStop, unconditional, Idle},
	{RealTime, triggerReset, unconditional, RealTime},

	{RunningFull, triggerRealTime, noPath, RunningFull}, // real-time follows it
	{RunningFull, triggerStop, unconditional, Idle},     // it is canceled
	{RunningFull, triggerReset, unconditional, RunningFull},
	{RunningFull, triggerFullScanEnd, realTimeFollows, RealTime},
	{RunningFull, triggerFullScanEnd, nothingFollows, Idle},
}

// nextState returns the state that follows, and false where none does.
func nextState(from State, by trigger, c condition) (State, bool) {
	for _, t := range transitions {
		if t.From == from && t.Trigger == by && (t.Condition == unconditional || t.Condition == c) {
			return t.To, true
		}
	}
	return from, false
}
