package admission

import (
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// SaveSurplus finds failed requests to remove, so that a caller, and all together, use at most half
// of their limits: the rest is for new ones.
type SaveSurplus struct {
	from *Limiter
	has  map[string]Amounts // caller -> what stays; "": of all
}

// SaveSurplus returns a search over the failed requests, which begins with what is stored now.
func (l *Limiter) SaveSurplus() SaveSurplus {
	return SaveSurplus{from: l, has: map[string]Amounts{}}
}

// Removes reports whether a request is to be removed.
func (u SaveSurplus) Removes(s *farm.SaveRequest) bool {
	if s.Status != farm.SaveError || !u.over("") && (s.Caller == "" || !u.over(s.Caller)) {
		return false
	}
	size := record.SaveAmounts(s)
	for who := range map[string]bool{s.Caller: true, "": true} {
		left := u.left(who)
		left[Saves] -= int64(size[0])
		left[SavesSize] -= int64(size[1])
		u.has[who] = left
	}
	return true
}

// over reports whether a caller, "" for all, has more than half.
func (u SaveSurplus) over(caller string) bool {
	has := u.left(caller)
	for _, i := range []int{Saves, SavesSize} {
		limit := checks[i].max(u.from.limits)
		if caller != "" {
			limit = farm.CallerShare(limit)
		}
		if has[i] > (limit+1)/2 {
			return true
		}
	}
	return false
}

func (u SaveSurplus) left(caller string) Amounts {
	if _, ok := u.has[caller]; !ok {
		u.has[caller] = u.from.stored(caller)
	}
	return u.has[caller]
}
