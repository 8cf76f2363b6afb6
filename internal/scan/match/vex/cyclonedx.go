package vex

import (
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	openvex "github.com/openvex/go-vex/pkg/vex"
)

// suppressingStates are the states of an analysis that suppress a vulnerability.
var suppressingStates = []cyclonedx.ImpactAnalysisState{
	cyclonedx.IASNotAffected, cyclonedx.IASFalsePositive, cyclonedx.IASResolved, cyclonedx.IASResolvedWithPedigree,
}

// loadCycloneDX adds the statements of a CycloneDX document about its vulnerabilities.
func (s *Statements) loadCycloneDX(r io.Reader) error {
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(r, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return err
	}
	if bom.Vulnerabilities == nil {
		return nil
	}
	purls := map[string]string{}
	collectPURLs(purls, bom.Components)
	for _, v := range *bom.Vulnerabilities {
		if v.Analysis == nil || v.Analysis.State == "" {
			continue
		}
		to := statement{
			timestamp:  firstValidDate(v.Analysis.LastUpdated, v.Updated, v.Published, v.Created),
			status:     string(v.Analysis.State),
			suppresses: slices.Contains(suppressingStates, v.Analysis.State),
		}
		still := statement{timestamp: to.timestamp, status: string(cyclonedx.VulnerabilityStatusAffected)}
		for _, a := range derefList(v.Affects) {
			as, not := affectedProducts(purls, a)
			to.products = append(to.products, as...)
			still.products = append(still.products, not...)
		}
		ids := []string{v.ID}
		for _, ref := range derefList(v.References) {
			ids = append(ids, ref.ID)
		}
		s.add(to, ids)
		s.add(still, ids)
	}
	return nil
}

// collectPURLs records the package URL of every component, by its reference.
func collectPURLs(purls map[string]string, components *[]cyclonedx.Component) {
	for _, c := range derefList(components) {
		if c.BOMRef != "" && c.PackageURL != "" {
			purls[c.BOMRef] = c.PackageURL
		}
		collectPURLs(purls, c.Components)
	}
}

// affectedProducts returns the products that an entry names: those with the entry's state, and those that
// the entry itself calls affected or unknown. Single versions are used unchanged; ranges are
// unsupported, and so name nothing.
func affectedProducts(purls map[string]string, a cyclonedx.Affects) (as, not []openvex.Component) {
	purl := resolvePURL(purls, a.Ref)
	if purl == "" {
		return nil, nil
	}
	if len(derefList(a.Range)) == 0 {
		return []openvex.Component{{ID: purl}}, nil
	}
	name := purl
	if at := strings.LastIndexByte(purl, '@'); at > strings.LastIndexByte(purl, '/') {
		name = purl[:at]
	}
	for _, v := range *a.Range {
		if v.Version == "" {
			continue
		}
		c := openvex.Component{ID: name + "@" + url.PathEscape(v.Version)}
		switch v.Status {
		case cyclonedx.VulnerabilityStatusAffected, cyclonedx.VulnerabilityStatusUnknown:
			not = append(not, c)
		default: // also none: the schema has "affected" for that, its writers mean the state
			as = append(as, c)
		}
	}
	return as, not
}

// resolvePURL resolves a reference: to a component, to one of another document by its link, or
// a package URL itself.
func resolvePURL(purls map[string]string, ref string) string {
	if strings.HasPrefix(ref, "urn:cdx:") {
		_, ref, _ = strings.Cut(ref, "#")
		if plain, err := url.PathUnescape(ref); err == nil && strings.HasPrefix(plain, "pkg:") &&
			!strings.HasPrefix(ref, "pkg:") {
			ref = plain
		}
	}
	if purl := purls[ref]; purl != "" {
		return purl
	}
	if strings.HasPrefix(ref, "pkg:") {
		return ref
	}
	return ""
}

// firstValidDate returns the first valid date.
func firstValidDate(dates ...string) time.Time {
	for _, d := range dates {
		if at, err := time.Parse(time.RFC3339, d); err == nil {
			return at
		}
	}
	return time.Time{}
}

func derefList[T any](p *[]T) []T {
	if p == nil {
		return nil
	}
	return *p
}
