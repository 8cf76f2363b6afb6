package farm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pool is a warm pool: it keeps VMs of one template version running ahead of the starts that will use them.
type Pool struct {
	ID         string `json:"id"`   // UUID
	Name       string `json:"name"` // no two pools have the same; its case counts
	TemplateID string `json:"template_id"`
	// TemplateName is the name of the template when the pool was last changed.
	TemplateName string       `json:"template_name,omitempty"`
	Tag          string       `json:"tag,omitempty"`      // "": the newest version
	GroupID      string       `json:"group_id,omitempty"` // "": for starts without a group
	MinIdle      int          `json:"min_idle"`           // standbys, while no window of the schedule applies
	Schedule     []PoolWindow `json:"schedule,omitempty"` // the first window that applies decides
	TimeZone     string       `json:"time_zone,omitempty"`
	MaxAge       int64        `json:"max_age"` // seconds that a standby may run; 0: unlimited
	Created      time.Time    `json:"created"`
	Updated      time.Time    `json:"updated"`
}

// PoolWindow is a time of the week with another number of standbys.
type PoolWindow struct {
	Days    []string `json:"days,omitempty"` // on which it begins, as in PoolDays; empty: every day
	From    string   `json:"from"`           // HH:MM in the time zone of the pool
	To      string   `json:"to"`             // HH:MM, not after From: on the next day
	MinIdle int      `json:"min_idle"`
}

// PoolDays are the names of days in a schedule, by time.Weekday.
var PoolDays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// weekDays are the names of days in the order of a week, for ranges such as sat-mon.
var weekDays = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

// ParsePoolWindow parses a window such as mon-fri@08:00-18:00=10, or 08:00-18:00=10 for every day. Check says whether
// its times and its number are valid.
func ParsePoolWindow(text string) (w PoolWindow, err error) {
	bad := fmt.Errorf("invalid window %q: want DAYS@FROM-TO=COUNT, such as mon-fri@08:00-18:00=10", Clip(text, 64))
	rest, count, ok := strings.Cut(text, "=")
	if w.MinIdle, err = strconv.Atoi(count); err != nil || !ok {
		return PoolWindow{}, bad
	}
	days, times, ok := strings.Cut(rest, "@")
	if !ok {
		days, times = "", rest
	}
	if w.From, w.To, ok = strings.Cut(times, "-"); !ok {
		return PoolWindow{}, bad
	}

	for part := range strings.SplitSeq(days, ",") {
		if part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		from := slices.Index(weekDays, first)
		to := from
		if isRange {
			to = slices.Index(weekDays, last)
		}
		if from < 0 || to < 0 || len(w.Days) > len(weekDays) {
			return PoolWindow{}, bad
		}
		for day := from; ; day = (day + 1) % len(weekDays) {
			w.Days = append(w.Days, weekDays[day])
			if day == to {
				break
			}
		}
	}
	return w, nil
}

// String returns a window as ParsePoolWindow parses it.
func (w PoolWindow) String() string {
	text := fmt.Sprintf("%s-%s=%d", w.From, w.To, w.MinIdle)
	if len(w.Days) > 0 {
		text = strings.Join(w.Days, ",") + "@" + text
	}
	return text
}

// Limits of pools.
const (
	MaxPools       = 100
	MaxPoolIdle    = 1000 // standbys of one pool
	MaxPoolWindows = 50
	MinPoolAge     = time.Minute // of a standby, where its age is limited
	MaxPoolAge     = 365 * 24 * time.Hour
)

// minuteOfDay returns the minute of a time of day, 0..1440; -1 when the text is none.
func minuteOfDay(text string) int {
	var h, m int
	if n, err := fmt.Sscanf(text, "%d:%d", &h, &m); err != nil || n != 2 || len(text) != len("00:00") ||
		h < 0 || m < 0 || m > 59 || h*60+m > 24*60 {
		return -1
	}
	return h*60 + m
}

// Check returns why a window is not valid; nil when it is.
func (w PoolWindow) Check() error {
	if len(w.Days) > len(PoolDays) {
		return Invalid("schedule", "has a window with more than %d days", len(PoolDays))
	}
	for _, d := range w.Days {
		if !slices.Contains(PoolDays, d) {
			return Invalid("schedule", "has the day %q: days are mon, tue, wed, thu, fri, sat and sun", Clip(d, 20))
		}
	}
	from, to := minuteOfDay(w.From), minuteOfDay(w.To)
	switch {
	case from < 0 || to < 0 || from == 24*60:
		return Invalid("schedule", "has the times %q to %q: times have the form HH:MM", Clip(w.From, 20),
			Clip(w.To, 20))
	case from == to:
		return Invalid("schedule", "has a window that begins and ends at %s", w.From)
	case w.MinIdle < 0 || w.MinIdle > MaxPoolIdle:
		return Invalid("schedule", "has min_idle %d: it must be 0 to %d", w.MinIdle, MaxPoolIdle)
	}
	return nil
}

// applies reports whether a window applies at a local time.
func (w PoolWindow) applies(at time.Time) bool {
	from, to, now := minuteOfDay(w.From), minuteOfDay(w.To), at.Hour()*60+at.Minute()
	begins := func(day time.Weekday) bool {
		return len(w.Days) == 0 || slices.Contains(w.Days, PoolDays[(day+7)%7])
	}
	if from < to {
		return now >= from && now < to && begins(at.Weekday())
	}
	return now >= from && begins(at.Weekday()) || now < to && begins(at.Weekday()-1)
}

// WantedAt returns how many standbys the pool keeps at a time.
func (p *Pool) WantedAt(at time.Time) int {
	zone, err := time.LoadLocation(p.TimeZone) // "" is UTC
	if err != nil {
		zone = time.UTC // the zone was known when the pool was created
	}
	at = at.In(zone)
	for _, w := range p.Schedule {
		if w.applies(at) {
			return w.MinIdle
		}
	}
	return p.MinIdle
}

// PoolStats are the sums of a pool since it was created.
type PoolStats struct {
	Hits         int64   `json:"hits"`          // starts that claimed a ready standby
	EarlyHits    int64   `json:"early_hits"`    // starts that claimed one which still booted
	Misses       int64   `json:"misses"`        // starts that fitted and found no standby
	SlotSeconds  float64 `json:"slot_seconds"`  // that its standbys have used a slot
	SavedSeconds float64 `json:"saved_seconds"` // that placements and boots of claimed standbys had taken
	Booted       int64   `json:"booted"`        // standbys that became ready
	Yielded      int64   `json:"yielded"`       // standbys that were ended for a request without a free slot
	Replaced     int64   `json:"replaced"`      // standbys that were ended for their age or another version
	Failed       int64   `json:"failed"`        // standbys that failed
}

// PoolClaim is what an instance that was a standby keeps of that.
type PoolClaim struct {
	Pool  string `json:"pool"`
	Claim string `json:"claim"` // of its placement as a standby: its node may still report it
	// BootSeconds is how long the boot of the standby took, or had taken when it was claimed early.
	BootSeconds float64 `json:"boot_seconds,omitempty"`
	Early       bool    `json:"early,omitempty"` // the standby was not ready yet
}

// IsStandby reports whether the instance belongs to a pool: no caller has asked for it.
func (i *Instance) IsStandby() bool { return i.Pool != "" }

// IsReady reports whether a start that claims this standby has a running VM.
func (i *Instance) IsReady() bool {
	return i.IsStandby() && i.State == Started && i.Task == nil && i.NodeLostAt.IsZero() && i.VM != nil &&
		i.VM.Status == VMRunning
}

// IsBooting reports whether this standby is on its way to readiness. A start can claim it as well.
func (i *Instance) IsBooting() bool {
	return i.IsStandby() && (i.State == Scheduling || i.State == Pulling) && i.NodeID != "" && i.Task == nil &&
		i.NodeLostAt.IsZero()
}

// ClaimedBy returns the record of a standby after a start has claimed it: the instance that was requested, in
// the place of the standby. The id was never that of another instance, and the claim is new: what the node reports
// of the standby from then on changes nothing.
func (i *Instance) ClaimedBy(want *Instance, claim string, now time.Time) *Instance {
	n := want.Clone()
	n.ID, n.MAC, n.NodeID, n.NodeName, n.VM, n.Registry = i.ID, i.MAC, i.NodeID, i.NodeName, i.VM, i.Registry
	n.State, _ = NextInstanceState(Scheduling, Placed)
	n.Claim, n.Placed, n.Updated, n.MissedPool = claim, now, now, ""
	n.Claimed = &PoolClaim{Pool: i.Pool, Claim: i.Claim, Early: i.Started.IsZero()}
	ahead := i.Started.Sub(i.Placed)
	if n.Claimed.Early {
		ahead = now.Sub(i.Placed)
	}
	n.Claimed.BootSeconds = max(0, ahead.Seconds())
	return n
}

// Holds reports whether the node of the instance may have its VM under a claim: its own, or that of the standby that
// it was.
func (i *Instance) Holds(claim string) bool {
	return i.Claim == claim || i.Claimed != nil && i.Claimed.Claim == claim && claim != ""
}
