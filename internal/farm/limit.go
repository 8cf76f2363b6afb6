package farm

import (
	"fmt"
	"time"
)

// callerShareDivisor is the part of a limit, one in so many, that one caller may have.
const callerShareDivisor = 4

// CallerShare returns what one caller may have of a limit for all: a quarter, rounded up.
func CallerShare[T int | int64](limit T) T {
	return (limit + callerShareDivisor - 1) / callerShareDivisor
}

// Busy returns the refusal of a request over a limit; wait is when to try again.
func Busy(wait time.Duration, format string, args ...any) *Error {
	return &Error{Code: CodeBusy, Message: fmt.Sprintf(format, args...), RetryAfter: wait}
}
