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
	startFull     trigger = "start a full scan"
	startRealTime trigger = "start real-time scanning"
	stop          trigger = "stop"
	reset         trigger = "reset"
	fullEnds      trigger = "the full scan ends"
)

// condition is an additional condition of a transition.
type condition string

const (
	always     condition = ""
	withPath   condition = "with a path"
	noPath     condition = "without a path"
	followed   condition = "real-time ran before or was asked for"
	unfollowed condition = "nothing was asked to follow"
)

// transition is a row of the table.
type transition struct {
	From    State
	Trigger trigger
	If      condition
	To      State
}

// transitions lists every transition. Others are refused: during a full scan a second one is, and
// real-time scanning with a path, which begins with one.
var transitions = []transition{
	{Idle, startFull, always, RunningFull},
	{Idle, startRealTime, noPath, RealTime},
	{Idle, startRealTime, withPath, RunningFull},
	{Idle, stop, always, Idle},
	{Idle, reset, always, Idle},

	{RealTime, startFull, always, RunningFull},
	{RealTime, startRealTime, noPath, RealTime},
	{RealTime, startRealTime, withPath, RunningFull},
	{RealTime, stop, always, Idle},
	{RealTime, reset, always, RealTime},

	{RunningFull, startRealTime, noPath, RunningFull}, // real-time follows it
	{RunningFull, stop, always, Idle},                 // it is canceled
	{RunningFull, reset, always, RunningFull},
	{RunningFull, fullEnds, followed, RealTime},
	{RunningFull, fullEnds, unfollowed, Idle},
}

// next returns the state that follows, and false where none does.
func next(from State, by trigger, c condition) (State, bool) {
	for _, t := range transitions {
		if t.From == from && t.Trigger == by && (t.If == always || t.If == c) {
			return t.To, true
		}
	}
	return from, false
}
