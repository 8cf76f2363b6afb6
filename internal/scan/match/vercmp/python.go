package vercmp

import (
	"strings"
	"sync"

	scalibr "github.com/google/osv-scalibr/semantic"
)

// pythonVersion is a version of PEP 440.
type pythonVersion struct {
	scalibr.PyPIVersion
}

func (v pythonVersion) compare(other parsedVersion) int {
	n, _ := v.Compare(other.(pythonVersion).PyPIVersion) // both have one type: it cannot fail
	return n
}

// parsePEP440 parses a version of a Python package. The library orders legacy texts from before PEP
// 440 below all others, where nearly every advisory would affect them: they are refused here.
func parsePEP440(text string) (parsedVersion, error) {
	v, err := scalibr.ParsePyPIVersion(text)
	if err != nil {
		return nil, invalidVersionError(PEP440, text)
	}
	if n, err := v.Compare(minPythonVersion()); err != nil || n < 0 {
		return nil, invalidVersionError(PEP440, text)
	}
	return pythonVersion{v}, nil
}

// minPythonVersion is the lowest version of PEP 440.
var minPythonVersion = sync.OnceValue(func() scalibr.PyPIVersion {
	v, err := scalibr.ParsePyPIVersion("0.dev0")
	if err != nil {
		panic(err)
	}
	return v
})

// WithoutLocal cuts the local part of a version of PEP 440 ("1.4+cu118"). The builder of a package
// adds it, and ranges do not contain it.
func WithoutLocal(text string) string {
	public, _, _ := strings.Cut(text, "+")
	return public
}
