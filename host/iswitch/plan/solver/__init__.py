"""Find the fastest plan and prove it: integer and linear programs, solved by HiGHS."""
