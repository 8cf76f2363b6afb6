//go:build !unix

package host

import "time"

// processorTime is unknown on this system: no worker rests.
func processorTime() time.Duration { return 0 }
