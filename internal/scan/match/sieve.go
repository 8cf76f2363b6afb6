package match

import "github.com/buildyard/buildyard/internal/scan/catalog"

// RuleFilter applies rules to findings that were made without any. Several goroutines may use it.
type RuleFilter struct{ judge matcher }

// NewSieve makes one. It fails when the rules make no sense.
func NewSieve(r Rules) (*RuleFilter, error) {
	ignored, err := r.ignored()
	if err != nil {
		return nil, err
	}
	return &RuleFilter{matcher{options: Options{Rules: r}, ignored: ignored}}, nil
}

// Keep reports whether the rules leave a finding in.
func (s *RuleFilter) Keep(f *Finding) bool {
	why, _ := s.judge.rule(f)
	return why == shown
}

// ByProduct reports whether packages of a kind are judged by what NVD says of products, where
// one package may decide about another.
func ByProduct(k catalog.PackageType) bool { return byProduct[k] }
