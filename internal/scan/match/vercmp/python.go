package vercmp

import (
	"strings"
	"sync"

	scalibr "github.com/google/osv-scalibr/semantic"
)

// python is a version of PEP 440.
type python struct {
	scalibr.PyPIVersion
}

func (v python) compare(other value) int {
	n, _ := v.Compare(other.(python).PyPIVersion) // of one type: it cannot fail
	return n
}

// parsePEP440 reads a version of a Python package. The library orders texts from before
// PEP 440 below all others, where they would be affected by nearly everything: they are
// refused here.
func parsePEP440(text string) (value, error) {
	v, err := scalibr.ParsePyPIVersion(text)
	if err != nil {
		return nil, notOf(PEP440, text)
	}
	if n, err := v.Compare(firstPython()); err != nil || n < 0 {
		return nil, notOf(PEP440, text)
	}
	return python{v}, nil
}

// firstPython is the version of PEP 440 that no other comes before.
var firstPython = sync.OnceValue(func() scalibr.PyPIVersion {
	v, err := scalibr.ParsePyPIVersion("0.dev0")
	if err != nil {
		panic(err)
	}
	return v
})

// WithoutLocal cuts the local part of a version of PEP 440 ("1.4+cu118"), which whoever
// builds a package adds and no range speaks of.
func WithoutLocal(text string) string {
	public, _, _ := strings.Cut(text, "+")
	return public
}
