//go:build !unix

package host

import "time"

// processorTime is not known here: nothing rests.
func processorTime() time.Duration { return 0 }
