package farm_test

import (
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestPoolSchedule: the first window that applies decides, also one over midnight, in the time zone of the pool.
func TestPoolSchedule(t *testing.T) {
	p := &farm.Pool{MinIdle: 1, TimeZone: "Europe/Berlin", Schedule: []farm.PoolWindow{
		{Days: []string{"mon", "tue"}, From: "08:00", To: "18:00", MinIdle: 10},
		{Days: []string{"fri"}, From: "22:00", To: "02:00", MinIdle: 5},
		{From: "12:00", To: "12:30", MinIdle: 3},
	}}
	for at, want := range map[string]int{
		"2026-11-30T06:59:00Z": 1,  // Monday 07:59 in Berlin
		"2026-11-30T07:00:00Z": 10, // 08:00
		"2026-11-30T16:59:00Z": 10,
		"2026-11-30T17:00:00Z": 1,
		"2026-12-02T11:15:00Z": 3, // Wednesday 12:15
		"2026-12-04T21:30:00Z": 5, // Friday 22:30
		"2026-12-05T00:30:00Z": 5, // Saturday 01:30
		"2026-12-05T21:30:00Z": 1,
	} {
		when, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.WantedAt(when); got != want {
			t.Errorf("%s: %d standbys, want %d", at, got, want)
		}
	}
}

// TestParsePoolWindow: what String writes is parsed, ranges may cross the end of the week.
func TestParsePoolWindow(t *testing.T) {
	for text, want := range map[string]string{
		"mon-wed@08:00-18:00=10": "mon,tue,wed@08:00-18:00=10",
		"sat-mon@22:00-02:00=0":  "sat,sun,mon@22:00-02:00=0",
		"08:00-24:00=3":          "08:00-24:00=3",
		"fri,sun@08:00-09:00=1":  "fri,sun@08:00-09:00=1",
	} {
		w, err := farm.ParsePoolWindow(text)
		if err != nil || w.String() != want || w.Check() != nil {
			t.Errorf("%s: %s, %v", text, w, err)
		}
	}
	for _, text := range []string{
		"", "=", "10", "08:00-18:00", "08:00=3", "08:00-18:00=x", "day@08:00-18:00=1", "mon-day@08:00-18:00=1",
		strings.Repeat("mon-sun,", 1000) + "@08:00-18:00=1",
	} {
		if w, err := farm.ParsePoolWindow(text); err == nil {
			t.Errorf("%.20s is parsed as %s", text, w)
		}
	}
}

func TestPoolWindows(t *testing.T) {
	for _, w := range []farm.PoolWindow{
		{From: "8:00", To: "18:00"},
		{From: "08:00", To: "08:00"},
		{From: "08:00", To: "24:01"},
		{From: "24:00", To: "01:00"},
		{From: "08:60", To: "09:00"},
		{From: "-1:00", To: "09:00"},
		{From: "", To: ""},
		{Days: []string{"monday"}, From: "08:00", To: "09:00"},
		{From: "08:00", To: "09:00", MinIdle: -1},
		{From: "08:00", To: "09:00", MinIdle: farm.MaxPoolIdle + 1},
	} {
		if w.Check() == nil {
			t.Errorf("%+v is valid", w)
		}
	}
	if err := (farm.PoolWindow{From: "00:00", To: "24:00"}).Check(); err != nil {
		t.Error(err)
	}
}
