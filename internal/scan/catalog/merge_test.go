package catalog

import (
	"fmt"
	"testing"
)

// grown is a set with one package that was found repeatedly, each time with another bundle
// identifier, license and path.
func grown(times int) *packageSet {
	s := newPackageSet(defaultLimits)
	for i := range times {
		text := fmt.Sprintf("com.example.%06d", i)
		s.add(Package{
			Kind: MacOSApp, Name: "App", Version: "1", BundleIDs: []string{text}, Licenses: []string{text, text},
			Locations: []string{text},
		})
	}
	return s
}

// The reported size of a set is that of its packages, however often they were found.
func TestRepositoryCountsWhatGrows(t *testing.T) {
	s := grown(100)
	h := s.kept.elements[0]
	if len(s.kept.elements) != 1 || s.kept.usedBytes != h.sizeBytes() || len(h.BundleIDs) != 100 ||
		len(h.Licenses) != 100 ||
		len(h.Locations) != 100 {
		t.Errorf("%d packages of %d bytes; the first has %d, and %d, %d, %d of each list",
			len(s.kept.elements), s.kept.usedBytes, h.sizeBytes(), len(h.BundleIDs), len(h.Licenses), len(h.Locations))
	}
}

// BenchmarkFoundAgain shows how the cost of a package grows with the times that it is found.
func BenchmarkFoundAgain(b *testing.B) {
	for _, times := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(times), func(b *testing.B) {
			for b.Loop() {
				grown(times)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(times), "ns/find")
		})
	}
}
