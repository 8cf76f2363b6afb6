package usage

import (
	"math"
	"slices"
	"time"
)

// Classes of times: each is so much wider than the previous one that the reported value of a class,
// its middle, is at most 6 % from any time in it.
const (
	startClasses = 128
	firstClass   = .01  // seconds, upper end of the first
	classGrowth  = 1.11 // from the upper end of one to that of the next; the last is at 1.6 h
)

// classOf returns the class of a time.
func classOf(d time.Duration) int {
	s := d.Seconds()
	if s <= firstClass {
		return 0
	}
	return min(int(math.Ceil(math.Log(s/firstClass)/math.Log(classGrowth))), startClasses-1)
}

// middle returns the reported value of a class, in seconds.
func middle(class int) float64 {
	s := firstClass * math.Pow(classGrowth, float64(class)-.5)
	digits := math.Pow(10, 2-math.Floor(math.Log10(s))) // three of them
	return math.Round(s*digits) / digits
}

// classCount is the number of times in one class.
type classCount struct {
	class uint8
	n     uint32
}

// classTimes has the number of times by class, in rising order and without empty classes. nil: none.
type classTimes []classCount

// add adds a number of times to a class.
func (t *classTimes) add(class int, n uint32) {
	at, found := slices.BinarySearchFunc(*t, class, func(c classCount, class int) int { return int(c.class) - class })
	switch {
	case n == 0 || class < 0 || class >= startClasses:
	case found:
		(*t)[at].n += min(n, math.MaxUint32-(*t)[at].n)
	default:
		*t = slices.Insert(*t, at, classCount{uint8(class), n})
	}
}

// merge adds other times.
func (t *classTimes) merge(other classTimes) {
	for _, c := range other {
		t.add(int(c.class), c.n)
	}
}

// count returns the number of times.
func (t classTimes) count() (n int) {
	for _, c := range t {
		n += int(c.n)
	}
	return n
}

// within returns the seconds that a share of the times does not exceed; nil without times.
func (t classTimes) within(share float64) *float64 {
	rest := math.Ceil(share * float64(t.count()))
	for _, c := range t {
		if rest -= float64(c.n); rest <= 0 {
			seconds := middle(int(c.class))
			return &seconds
		}
	}
	return nil
}

// pairs returns the times in their stored form: pairs of a class and the number in it.
func (t classTimes) pairs() (list []uint32) {
	for _, c := range t {
		list = append(list, uint32(c.class), c.n)
	}
	return list
}

// timesOf returns the times of stored pairs. Classes that do not exist are left out.
func timesOf(pairs []uint32) (t classTimes) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] < startClasses {
			t.add(int(pairs[i]), pairs[i+1])
		}
	}
	return t
}
