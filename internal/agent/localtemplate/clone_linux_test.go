package localtemplate_test

import (
	"testing"

	"github.com/buildyard/buildyard/internal/tools/xfstest"
)

// TestOnXFS runs the tests that depend on clones on a file system with clones.
func TestOnXFS(t *testing.T) {
	xfstest.Run(t, "TestNextTagCostsWhatChanged", "TestPullRefusesChangedBases", "TestPullContinuesWithItsSecondStep",
		"TestPullAfterAKill",
		"TestWholeDiskIsCloned")
}
