package match

// Check returns an error for invalid rules before any match uses them.
func (r *Rules) Check() error {
	_, err := r.ignoredCPEs()
	return err
}
