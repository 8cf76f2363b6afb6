package host

import (
	"testing"
	"time"
)

// TestPace: a burst runs without rests, a storm gets its share in the long run, and a full scan
// does not count.
func TestPace(t *testing.T) {
	now, used := time.Unix(1000, 0), time.Duration(0)
	var p throttle
	if d := p.restTime(now, used, 0); d != 0 {
		t.Errorf("it begins with a rest of %s", d)
	}
	now, used = now.Add(time.Second), used+time.Second
	if d := p.restTime(now, used, 0); d != 0 {
		t.Errorf("a burst is followed by a rest of %s", d)
	}
	began, before := now, used
	for range 100 { // work that takes half a second each time
		now, used = now.Add(500*time.Millisecond), used+500*time.Millisecond
		d := p.restTime(now, used, 0)
		if d > throttleMaxRest {
			t.Fatalf("a rest of %s", d)
		}
		now = now.Add(d)
	}
	if share := float64(used-before) / float64(now.Sub(began)); share > throttleShare*1.1 {
		t.Errorf("a storm costs %.2f of a core", share)
	}
	now, used = now.Add(10*time.Second), used+10*time.Second
	if d := p.restTime(now, used, 1); d != 0 {
		t.Errorf("a full scan is followed by a rest of %s", d)
	}
	if d := p.restTime(now.Add(time.Hour), used+time.Second, 1); d != 0 {
		t.Errorf("an hour later there is a rest of %s", d)
	}
}
