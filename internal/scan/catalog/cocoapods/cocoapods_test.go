package cocoapods

import (
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

const lockText = `PODS:
  - AFNetworking (4.0.1):
    - AFNetworking/NSURLSession (= 4.0.1)
  - AFNetworking/NSURLSession (4.0.1)
  - Firebase/Core (10.0.0)
  - Mine (0.1.0)
DEPENDENCIES:
  - AFNetworking (~> 4.0)
EXTERNAL SOURCES:
  Mine:
    :path: "../Mine"
COCOAPODS: 1.12.1
`

func TestLock(t *testing.T) {
	catalogtest.Expect(t, []catalog.Extractor{LockFiles{}}, catalogtest.Files{
		"app/Podfile.lock":                 lockText,
		"app/Pods/Manifest.lock":           lockText,
		"app/other/Manifest.lock":          lockText,
		"bad/Podfile.lock":                 "PODS: [",
		"app/node_modules/rn/Podfile.lock": lockText,
	},
		"pod AFNetworking 4.0.1 /app/Podfile.lock /app/Pods/Manifest.lock",
		"pod Firebase 10.0.0 /app/Podfile.lock /app/Pods/Manifest.lock",
		"pod Mine 0.1.0 /app/Podfile.lock /app/Pods/Manifest.lock (replaced)",
		"! /bad/Podfile.lock: pod/Podfile.lock: yaml: line 1: did not find expected node content",
	)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(lockText))
	f.Add([]byte("PODS:\n- {}\n- [a]\n"))
	f.Fuzz(func(_ *testing.T, data []byte) { parseLock(data) })
}
