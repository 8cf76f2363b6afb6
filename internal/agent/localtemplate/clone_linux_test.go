package localtemplate_test

import (
	"testing"

	"github.com/buildyard/buildyard/internal/tools/xfstest"
)

// TestOnXFS runs what depends on clones where files can be cloned.
func TestOnXFS(t *testing.T) {
	xfstest.Run(t, "TestNextTagCostsWhatChanged", "TestPullRefusesChangedBases", "TestPullGoesOnWithItsSecondStep", "TestPullAfterAKill",
		"TestWholeDiskIsCloned")
}
