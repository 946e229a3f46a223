declare namespace Time {
  interface GetCurrentTimeArgs {
    /** IANA timezone name (e.g., 'America/New_York', 'Europe/London'). Use 'Etc/UTC' as local timezone if no timezone provided by the user. */
    timezone: string;
  }
  interface GetCurrentTimeResult {
    timezone: string;
    datetime: string;
    day_of_week: string;
    is_dst: boolean;
  }
  interface ConvertTimeArgs {
    /** Source IANA timezone name (e.g., 'America/New_York', 'Europe/London'). Use 'Etc/UTC' as local timezone if no source timezone provided by the user. */
    source_timezone: string;
    /** Time to convert in 24-hour format (HH:MM) */
    time: string;
    /** Target IANA timezone name (e.g., 'Asia/Tokyo', 'America/San_Francisco'). Use 'Etc/UTC' as local timezone if no target timezone provided by the user. */
    target_timezone: string;
  }
  interface ConvertTimeResult {
    source: ConvertTimeResultTimeResult;
    target: ConvertTimeResultTimeResult;
    time_difference: string;
  }
  interface ConvertTimeResultTimeResult {
    timezone: string;
    datetime: string;
    day_of_week: string;
    is_dst: boolean;
  }
}

declare const mcp: {
  readonly time: {
    /** Get current time in a specific timezone */
    get_current_time(args: Time.GetCurrentTimeArgs): Promise<Time.GetCurrentTimeResult>;
    /** Convert time between timezones */
    convert_time(args: Time.ConvertTimeArgs): Promise<Time.ConvertTimeResult>;
  };
};
declare const time: typeof mcp.time;
