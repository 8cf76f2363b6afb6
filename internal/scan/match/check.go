package match

// Check returns what is wrong with rules before anything is judged by them.
func (r *Rules) Check() error {
	_, err := r.ignored()
	return err
}
