//go:build !linux && !darwin

package watch

// open has no more than polling.
func open(s *scope, news *gather) (source, error) {
	return choose(s, news, []way{{Poll, openPoll}})
}
