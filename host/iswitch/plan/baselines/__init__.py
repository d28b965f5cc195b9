"""Schemes to compare plans with: no aggregation, ATP, SwitchML, GRID."""
