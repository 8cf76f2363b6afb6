//go:build !linux && !darwin

package watch

// open can only poll.
func open(s *scope, news *gather) (source, error) {
	return choose(s, news, []way{{Poll, openPoll}})
}
