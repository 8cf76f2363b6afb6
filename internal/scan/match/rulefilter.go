package match

import "github.com/buildyard/buildyard/internal/scan/catalog"

// RuleFilter applies rules to findings that were made without any. It is safe for concurrent use.
type RuleFilter struct{ matcher matcher }

// NewRuleFilter creates one. It fails for invalid rules.
func NewRuleFilter(r Rules) (*RuleFilter, error) {
	ignored, err := r.ignoredCPEs()
	if err != nil {
		return nil, err
	}
	return &RuleFilter{matcher{options: Options{Rules: r}, ignoredCPEs: ignored}}, nil
}

// Keep reports whether the rules leave a finding in, and removes the locations that ignore rules leave out.
func (s *RuleFilter) Keep(f *Finding) bool {
	why, _ := s.matcher.suppressingRule(f)
	if why != notSuppressed {
		return false
	}
	kept, rules := s.matcher.options.Rules.splitIgnored(f)
	if len(rules) == 0 {
		return true
	}
	f.Package.Locations = kept
	return len(kept) > 0
}

// IsMatchedByProduct reports whether packages of a kind are matched against NVD's statements about products.
// There one package may affect the match of another.
func IsMatchedByProduct(k catalog.PackageType) bool { return matchedByProduct[k] }
